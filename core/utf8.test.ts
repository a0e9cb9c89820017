import { expect, test } from 'vitest';
import { decodeUtf8 } from './utf8.ts';

test('text in UTF-8 is returned as it is, a replacement character that was written among it', () => {
  expect(decodeUtf8(Buffer.from('é 中 😀 \uFFFD\n'), 'a.txt')).toBe('é 中 😀 \uFFFD\n');
});

test.each([
  ['Latin-1', Buffer.from('one\nSay café.\n', 'latin1'), 'a.txt:2:8'],
  ['UTF-16', Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from('a', 'utf16le')]), 'a.txt:1:1'],
  ['half a character at the end', Buffer.from('中\n中').subarray(0, 6), 'a.txt:2:1'],
  [
    'a fault behind a written replacement character',
    Buffer.concat([Buffer.from('\uFFFDx'), Buffer.of(0xe9)]),
    'a.txt:1:3',
  ],
])('%s is refused with the file, the line and the column', (_, bytes, where) => {
  expect(() => decodeUtf8(bytes, 'a.txt')).toThrow(`${where}: not UTF-8`);
});
