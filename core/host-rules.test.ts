import { describe, expect, test } from 'vitest';
import { canonicalHost, findRule, hostRule, notCovered, readRules } from './host-rules.ts';

const faultOf = (text: string): string => hostRule.safeParse(text).error?.issues[0]?.message ?? 'none';

test.each([
  'pypi.org',
  'Pypi.ORG.',
  'pypi.org:8443',
  '*.pythonhosted.org',
  '*.a.b:22',
  'bücher.example',
  'a_b.example',
])('the entry %s of a list of hosts is allowed', (text) => {
  expect(faultOf(text)).toBe('none');
});

test.each(['10.0.0.7', '10.0.0.7:5432', '[2001:db8::7]', '[2001:DB8::7]:443', '192.0.2.1'])(
  'the address %s may be an entry of a list of hosts',
  (text) => {
    expect(faultOf(text)).toBe('none');
  },
);

test.each([
  ['https://pypi.org', /is no host: write `name`/],
  ['pypi.org/simple', /is no host/],
  ['user@pypi.org', /is no host/],
  ['pypi.org:0', /is no host/],
  ['pypi.org:65536', /is no host/],
  ['', /is no host/],
  ['a b', /is no host/],
  ['*', /is no host/],
  ['a.*.org', /is no host/],
  ['%70ypi.org', /is no host/],
  ['10.0.0.0/8', /is no host/],
  ['2001:db8::7', /is no host/],
  ['*.org', /is too much/],
  ['*.10.0.0.7', /is too much/],
  ['localhost', /this machine's loopback/],
  ['db.localhost:5432', /this machine's loopback/],
  ['127.0.0.1:5432', /this machine's loopback/],
  ['0.0.0.0', /this machine's loopback/],
  ['2130706433', /this machine's loopback/],
  ['0x7f.1', /this machine's loopback/],
  ['[::1]:5432', /this machine's loopback/],
  ['[::ffff:127.0.0.1]', /this machine's loopback/],
  ['0xa000007', /is the address 10\.0\.0\.7: write it so/],
  ['012.0.0.7', /is the address 10\.0\.0\.7: write it so/],
])('the entry %j of a list of hosts is refused with a sentence', (text, message) => {
  expect(faultOf(text)).toMatch(message);
});

test.each([
  ['PyPI.org.', 'pypi.org'],
  ['bücher.example', 'xn--bcher-kva.example'],
  ['XN--BCHER-KVA.example', 'xn--bcher-kva.example'],
  ['pуpi.org', 'xn--pi-6lcq.org'],
  ['0177.0.0.1', '127.0.0.1'],
  ['2130706433', '127.0.0.1'],
  ['127.1', '127.0.0.1'],
  ['[0:0::1]', '[::1]'],
  ['pypi.org..', null],
  ['pypi..org', null],
  ['.pypi.org', null],
  [`${'a.'.repeat(130)}org`, null],
  ['a\0b', null],
  ['a@b', null],
  ['a\\b', null],
])('the host %j has the one form %j', (text, host) => {
  // The fourth name has a Cyrillic letter.
  expect(text === 'pуpi.org' ? canonicalHost(text)?.startsWith('xn--') : canonicalHost(text)).toBe(
    text === 'pуpi.org' ? true : host,
  );
});

describe('a list of hosts', () => {
  const rules = readRules(['pypi.org', '*.pythonhosted.org', 'git.example:22', '10.0.0.7:8080', 'pypi.org:9000']);
  test.each([
    ['pypi.org', 443, true],
    ['pypi.org', 80, true],
    ['pypi.org', 9000, true],
    ['pypi.org', 22, false],
    ['a.pypi.org', 443, false],
    ['evilpypi.org', 443, false],
    ['pypi.org.evil.example', 443, false],
    ['files.pythonhosted.org', 443, true],
    ['a.b.pythonhosted.org', 443, true],
    ['pythonhosted.org', 443, false],
    ['evilpythonhosted.org', 443, false],
    ['git.example', 22, true],
    ['git.example', 443, false],
    ['10.0.0.7', 8080, true],
    ['10.0.0.7', 443, false],
  ])('opens %s:%i: %s', (host, port, isAllowed) => {
    expect(findRule(rules, { host, port }) !== null).toBe(isAllowed);
  });
});

test.each([
  [['pypi.org'], ['pypi.org'], []],
  [['PYPI.org.'], ['pypi.org'], []],
  [['a.pypi.org', '*.b.pypi.org', '*.pypi.org'], ['*.pypi.org'], []],
  [['pypi.org', '*.pypi.org'], ['pypi.org'], ['*.pypi.org']],
  [['pypi.org'], ['*.pypi.org', 'pypi.org:443'], ['pypi.org']],
  [['a', 'b'], [], ['a', 'b']],
])('of the hosts %j those that the list %j does not allow are %j', (wanted, allowed, missing) => {
  expect(notCovered(wanted, allowed)).toEqual(missing);
});
