import { z } from 'zod';

const opened = z.object({ api_key: z.string(), base_url: z.string() });

/** Opens a trial that is used and read only through the gateway's routes. */
export async function trialOverHttp(
  gateway: { url: string; adminKey: string },
  trialId: string,
  opening: Record<string, unknown> = {},
) {
  const session = `${gateway.url}/sessions/${trialId}`;
  // On a busy machine a server may close a kept connection at the moment of its next use.
  const admin = { authorization: `Bearer ${gateway.adminKey}`, connection: 'close' };
  const read = async (url: string): Promise<unknown> => (await fetch(url, { headers: admin })).json();
  const reply = await fetch(session, { method: 'POST', headers: admin, body: JSON.stringify(opening) });
  const { api_key, base_url } = opened.parse(await reply.json());
  const headers = { ...admin, authorization: `Bearer ${api_key}`, 'content-type': 'application/json' };
  const ask = (path: string, body: Record<string, unknown>, init: RequestInit = {}) =>
    fetch(`${base_url}${path}`, { method: 'POST', headers, body: JSON.stringify(body), ...init });
  const post = (path: string) => (body: Record<string, unknown>, init?: RequestInit) => ask(path, body, init);
  return {
    key: api_key,
    baseUrl: base_url,
    ask,
    chat: post('/chat/completions'),
    complete: post('/completions'),
    session: () => read(session),
    samples: () => read(`${session}/samples`),
  };
}
