/** What the hub says of a model. `away`: it does not say, and the reason is a part of a sentence. */
type Answer = { kind: 'found' } | { kind: 'none' | 'away'; why: string };

const ASK_MS = 5_000;

/** Asks the hub once for a model. `HF_ENDPOINT` names another hub, `HF_TOKEN` a token, and `HF_HUB_OFFLINE` forbids to ask, as for Hugging Face's own tools. */
export async function askHub(model: string, signal: AbortSignal): Promise<Answer> {
  const { HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE = '' } = process.env;
  const hub = HF_ENDPOINT ?? 'https://huggingface.co';
  if (/^(1|on|yes|true)$/i.test(HF_HUB_OFFLINE)) return { kind: 'away', why: 'HF_HUB_OFFLINE forbids to ask the hub' };
  const headers = HF_TOKEN ? { authorization: `Bearer ${HF_TOKEN}` } : undefined;
  try {
    const reply = await fetch(`${hub}/${model}/resolve/main/config.json`, {
      headers,
      signal: AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)]),
    });
    await reply.body?.cancel();
    if (reply.ok) return { kind: 'found' };
    if (reply.headers.get('x-error-code') === 'EntryNotFound')
      return { kind: 'none', why: `what ${hub} has of this name has no config.json` };
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
