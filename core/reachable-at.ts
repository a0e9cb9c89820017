/** Returns a host as URLs write it: an IPv6 address stands in brackets. */
export const hostInUrl = (host: string): string => (host.includes(':') && !host.startsWith('[') ? `[${host}]` : host);

export const httpUrl = (host: string, port: number): string => `http://${hostInUrl(host)}:${port}`;

/** Returns the URL of a server that listens on `host`. One that listens on every address is reached at `everywhere`, by default on loopback. */
export const reachableAt = (host: string, port: number, everywhere = '127.0.0.1'): string =>
  httpUrl(/^(0\.0\.0\.0|\[?::\]?)$/.test(host) ? everywhere : host, port);
