const LOOPBACK = /^(127(\.\d{1,3}){3}|localhost|::1|\[::1\])$/;

export const isLoopback = (host: string): boolean => LOOPBACK.test(host);

/**
 * True when a request was meant for this machine by a program on it. A web page in a local browser can reach loopback too, but under the
 * name of its own site or with its origin.
 */
export function isLocal(headers: Headers): boolean {
  const origin = headers.get('origin');
  return isLoopbackUrl(`http://${headers.get('host') ?? ''}`) && (origin === null || isLoopbackUrl(origin));
}

const isLoopbackUrl = (url: string): boolean => URL.canParse(url) && isLoopback(new URL(url).hostname);
