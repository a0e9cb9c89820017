import { z } from 'zod';

/** Hosts that a sandbox may reach: one name, all names below it, or one address. */
export type HostRule = {
  /** In the form of `canonicalHost`. */
  host: string;
  /** True for `*.name`: all names below `host`, but not `host` itself. */
  isSuffix: boolean;
  /** The only port; null: the ports of HTTP and HTTPS. */
  port: number | null;
};

export const HTTP_PORT = 80;
export const HTTPS_PORT = 443;

const ADDRESS = /^(\d+\.){3}\d+$|^\[/;
/** These hosts are the machine itself. What listens on loopback trusts every process of the machine. */
const OWN = /^(127\.|0\.|\[::1?\]$|\[::ffff:)|^(.+\.)?localhost$/;
const NAME = /^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$/;

/** True when the host is an address: `192.0.2.1` or `[2001:db8::1]`. */
export const isAddress = (host: string): boolean => ADDRESS.test(host);

/**
 * Returns a host in its one form: in lower case and ASCII (`xn--…`), without a final dot, an address as `192.0.2.1` or `[2001:db8::1]`, also
 * if it was written as a number. Returns null for what is no host.
 */
export function canonicalHost(text: string): string | null {
  if (!/^([^\s/\\?#@:%[\]]+|\[[0-9a-f:.]+\])$/i.test(text)) return null;
  let host: string;
  try {
    host = new URL(`http://${text}/`).hostname.replace(/\.$/, '');
  } catch {
    return null;
  }
  return host.length <= 253 && (isAddress(host) || NAME.test(host)) ? host : null;
}

/** Returns the host and the port of `host` or `host:port`; null for other text. */
export function parseHostAndPort(text: string): { host: string; port: number | null } | null {
  const [, name = '', digits] = /^(.*?)(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = canonicalHost(name);
  const port = digits === undefined ? null : Number(digits);
  return host === null || port === 0 || (port ?? 1) > 65_535 ? null : { host, port };
}

/** Returns the rule that the text means, or a sentence that says why it means none. */
function readRule(text: string): HostRule | string {
  const isSuffix = text.startsWith('*.');
  const found = parseHostAndPort(isSuffix ? text.slice(2) : text);
  if (found === null)
    return `${JSON.stringify(text)} is no host: write \`name\`, \`name:port\`, \`*.name\` or an address, without a scheme and a path`;
  const { host, port } = found;
  if (OWN.test(host))
    return `${text} is this machine's loopback, which no list opens: let the service listen on another address, and list that`;
  if (isSuffix && (isAddress(host) || !host.includes('.')))
    return `${text} is too much: write a name with a dot behind \`*.\``;
  if (isAddress(host) && !text.toLowerCase().startsWith(host)) return `${text} is the address ${host}: write it so`;
  return { host, isSuffix, port };
}

/** An entry of a list of hosts. */
export const hostRule = z.string().superRefine((text, { addIssue }) => {
  const rule = readRule(text);
  if (typeof rule === 'string') addIssue({ code: 'custom', message: rule });
});

/** Reads a list that `hostRule` has accepted. */
export const readRules = (texts: readonly string[]): HostRule[] =>
  texts.map(readRule).filter((rule) => typeof rule !== 'string');

const hasHost = ({ host, isSuffix }: HostRule, asked: string): boolean =>
  isSuffix ? asked.endsWith(`.${host}`) : asked === host;

/** Returns the rule that lets a sandbox reach this port of the host; null when none does. */
export const findRule = (rules: readonly HostRule[], { host, port }: { host: string; port: number }): HostRule | null =>
  rules.find((rule) => rule.port === port && hasHost(rule, host)) ??
  rules.find((rule) => rule.port === null && [HTTP_PORT, HTTPS_PORT].includes(port) && hasHost(rule, host)) ??
  null;

/** True when connections by this rule may carry what is neither TLS nor HTTP: its port was named, and is that of neither. */
export const carriesAnything = ({ port }: HostRule): boolean =>
  port !== null && port !== HTTP_PORT && port !== HTTPS_PORT;

/** Returns the entries of `wanted` that reach more than `allowed` does. */
export function notCovered(wanted: readonly string[], allowed: readonly string[]): string[] {
  const rules = readRules(allowed);
  return wanted.filter((text) => !readRules([text]).every((inner) => rules.some((outer) => covers(outer, inner))));
}

const covers = (outer: HostRule, inner: HostRule): boolean =>
  outer.port === inner.port &&
  (outer.isSuffix === inner.isSuffix && outer.host === inner.host
    ? true
    : outer.isSuffix && hasHost(outer, inner.host));
