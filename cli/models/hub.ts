import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** What the hub says of a model. `away`: it does not say, and the reason is a part of a sentence. */
type Answer = { kind: 'found' } | { kind: 'none' | 'away'; why: string };

const ASK_MS = 5_000;

/** Returns the token of a login, from where Hugging Face's own tools keep it. */
function tokenOfLogin(): string {
  const { HF_TOKEN_PATH, HF_HOME } = process.env;
  const file = HF_TOKEN_PATH ?? join(HF_HOME ?? join(homedir(), '.cache/huggingface'), 'token');
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : '';
}

/** Asks the hub once for a model. `HF_ENDPOINT` names another hub, `HF_TOKEN` a token, and `HF_HUB_OFFLINE` forbids to ask, as for Hugging Face's own tools. */
export async function askHub(model: string, signal: AbortSignal): Promise<Answer> {
  const { HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE = '' } = process.env;
  const hub = HF_ENDPOINT ?? 'https://huggingface.co';
  if (/^(1|on|yes|true)$/i.test(HF_HUB_OFFLINE)) return { kind: 'away', why: 'HF_HUB_OFFLINE forbids to ask the hub' };
  const token = HF_TOKEN ?? tokenOfLogin();
  const headers = token ? { authorization: `Bearer ${token}` } : undefined;
  try {
    const reply = await fetch(`${hub}/${model}/resolve/main/config.json`, {
      headers,
      signal: AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)]),
    });
    await reply.body?.cancel();
    if (reply.ok) return { kind: 'found' };
    const code = reply.headers.get('x-error-code');
    if (code === 'EntryNotFound') return { kind: 'none', why: `what ${hub} has of this name has no config.json` };
    if (code === 'GatedRepo')
      return { kind: 'none', why: `${hub} gives it only to those who have accepted its terms: log in (HF_TOKEN)` };
    if ([401, 403, 404].includes(reply.status))
      return { kind: 'none', why: `${hub} has none of this name, or asks for a login (HF_TOKEN)` };
    return { kind: 'away', why: `${hub} answered ${reply.status}` };
  } catch (error) {
    signal.throwIfAborted();
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    return {
      kind: 'away',
      why: `${hub} cannot be reached (${cause instanceof Error ? cause.message : String(cause)})`,
    };
  }
}
