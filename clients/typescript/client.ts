import type {
  ClaimReply,
  EngineList,
  ReportReply,
  SessionEnd,
  Filter,
  OpenedSession,
  Opening,
  Page,
  RewardReply,
  SampleLine,
  Samples,
  Session,
  Summary,
} from './types.ts';

import type { Deployment } from './deployment-types.ts';
import type {
  CallRequest,
  DroppedWork,
  GroupFilter,
  GroupList,
  IterationList,
  RunDetails,
  RunEvent,
  RunList,
  RunStart,
  RunVerb,
  SearchResult,
  StartLine,
  Timeline,
  Transcript,
  TrialFilter,
  VerbReply,
} from './run-types.ts';

export type * from './types.ts';
export type * from './run-types.ts';
export type * from './deployment-types.ts';

type Options = { baseUrl: string; adminKey?: string; fetch?: typeof fetch };
type Request = {
  method?: 'GET' | 'POST' | 'DELETE';
  query?: Record<string, string | number | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  key?: string;
  signal?: AbortSignal;
};

/** The gateway answered with an error. `code` is stable, such as `session_not_found` or `attempt_closed`. */
export class TrialgateApiError extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(`${status} ${code}: ${message}`);
    this.name = 'TrialgateApiError';
    this.status = status;
    this.code = code;
  }
}

/** Client for the session routes of a Trialgate gateway. Any OpenAI client gets answers at a session's `base_url`. */
export class TrialgateClient {
  readonly #options: Options;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Opens a session, or its next attempt. A repeated call with the same attempt gets the same answer. */
  open(trialId: string, opening: Opening = {}, signal?: AbortSignal): Promise<OpenedSession> {
    return this.#json(sessionPath(trialId), { method: 'POST', body: opening, signal });
  }

  /** Opens a session with an id that the gateway chooses. */
  create(opening: Opening = {}, signal?: AbortSignal): Promise<OpenedSession> {
    return this.#json('/sessions', { method: 'POST', body: opening, signal });
  }

  get(trialId: string, query: { attempt?: number } = {}, signal?: AbortSignal): Promise<Session> {
    return this.#json(sessionPath(trialId), { query, signal });
  }

  samples(trialId: string, query: { attempt?: number } = {}, signal?: AbortSignal): Promise<Samples> {
    return this.#json(`${sessionPath(trialId)}/samples`, { query, signal });
  }

  complete(trialId: string, signal?: AbortSignal): Promise<SessionEnd<'completed'>> {
    return this.#json(`${sessionPath(trialId)}/complete`, { method: 'POST', signal });
  }

  /** Reports the agent's own score for a session outside any run. `key` is the session's, for an agent without the admin key. */
  reward(
    trialId: string,
    reward: number,
    { key, signal }: { key?: string; signal?: AbortSignal } = {},
  ): Promise<RewardReply> {
    return this.#json(`${sessionPath(trialId)}/reward`, { method: 'POST', body: { reward }, key, signal });
  }

  /** Claims the next group of a run with `rollouts: external`. `Run.group` does this for you. `key` is the run's key. */
  claim(
    runId: string,
    body: { task: string; /** A new id for each claim: the same id again gets the same group. */ claim: string },
    { key, signal }: { key?: string; signal?: AbortSignal } = {},
  ): Promise<ClaimReply> {
    return this.#json(`/runs/${encodeURIComponent(runId)}/groups`, { method: 'POST', body, key, signal });
  }

  /** Ends a claimed trial with its reward, or without one. `Trial.report` and `Trial.discard` do this for you. */
  report(
    runId: string,
    trialId: string,
    body: { attempt: number; reward: number | Record<string, number> | null; reason?: string },
    { key, signal }: { key?: string; signal?: AbortSignal } = {},
  ): Promise<ReportReply> {
    const path = `/runs/${encodeURIComponent(runId)}/trials/${encodeURIComponent(trialId)}/reward`;
    return this.#json(path, { method: 'POST', body, key, signal });
  }

  delete(trialId: string, signal?: AbortSignal): Promise<SessionEnd<'deleted'>> {
    return this.#json(sessionPath(trialId), { method: 'DELETE', signal });
  }

  /** Deletes up to 1,000 sessions. An unknown id changes nothing. */
  batchDelete(trialIds: string[], signal?: AbortSignal): Promise<{ session_ids: string[]; status: 'deleted' }> {
    return this.#json('/sessions/batch_delete', { method: 'POST', body: { session_ids: trialIds }, signal });
  }

  list(query: Filter & { limit?: number } = {}, signal?: AbortSignal): Promise<Page> {
    return this.#json('/sessions', { query, signal });
  }

  /** Yields every session that matches, page after page. */
  async *all(query: Filter = {}, signal?: AbortSignal): AsyncGenerator<Summary> {
    for (let cursor = query.cursor; ;) {
      const page: Page = await this.list({ ...query, cursor }, signal);
      yield* page.sessions;
      if (page.next_cursor === null) return;
      cursor = page.next_cursor;
    }
  }

  /** Yields every session that matches, with its calls, as the gateway sends them. */
  export(query: Filter = {}, signal?: AbortSignal): AsyncGenerator<Session> {
    return this.#lines('/sessions/export', { query, signal });
  }

  exportSamples(query: Filter = {}, signal?: AbortSignal): AsyncGenerator<SampleLine> {
    return this.#lines('/sessions/export', { query: { ...query, samples: 'true' }, signal });
  }

  /** Reads bytes that a turn names by their SHA-256. */
  async blob(trialId: string, sha256: string, signal?: AbortSignal): Promise<Uint8Array> {
    return new Uint8Array(
      await (await this.#send(`${sessionPath(trialId)}/blobs/${sha256}`, { signal })).arrayBuffer(),
    );
  }

  /** Reads what an attempt's agent saw, call by call, with each message once. */
  transcript(
    trialId: string,
    query: { attempt?: number; after?: number; limit?: number } = {},
    signal?: AbortSignal,
  ): Promise<Transcript> {
    return this.#json(`${sessionPath(trialId)}/transcript`, { query, signal });
  }

  /** Reads the whole request of one call. */
  callRequest(trialId: string, callId: string, signal?: AbortSignal): Promise<CallRequest> {
    return this.#json(`${sessionPath(trialId)}/calls/${encodeURIComponent(callId)}/request`, { signal });
  }

  /** Reads the same as `samples`, as a person's page does: it waits for other readers, and refuses very long attempts. */
  tokens(trialId: string, query: { attempt?: number } = {}, signal?: AbortSignal): Promise<Samples> {
    return this.#json(`${sessionPath(trialId)}/tokens`, { query, signal });
  }

  /** Lists the runs, the newest first. */
  runs(query: { cursor?: string; limit?: number } = {}, signal?: AbortSignal): Promise<RunList> {
    return this.#json('/runs', { query, signal });
  }

  run(runId: string, signal?: AbortSignal): Promise<RunDetails> {
    return this.#json(runPath(runId), { signal });
  }

  /**
   * Checks a run file and starts its run, as `npx trialgate train` does. `onProgress` gets what is done meanwhile, and warnings. When this client
   * goes away, the gateway goes on.
   */
  async startRun(
    start: RunStart,
    { onProgress = () => {}, signal }: { onProgress?: (line: string) => void; signal?: AbortSignal } = {},
  ): Promise<VerbReply> {
    const lines = this.#lines<StartLine>('/runs', { method: 'POST', body: start, signal });
    for await (const { progress, error, run_id: id, message } of lines) {
      if (error) throw new TrialgateApiError(error.status, error.code, error.message);
      if (progress !== undefined) onProgress(progress);
      if (id !== undefined && message !== undefined) return { run_id: id, message };
    }
    throw new TrialgateApiError(502, 'no_trialgate', 'the answer ended before it said whether the run was started');
  }

  /** Pauses, resumes, stops, cancels, redoes or forks a run, as the command of that name does. */
  operate(runId: string, verb: RunVerb, signal?: AbortSignal): Promise<VerbReply> {
    return this.#json(runPath(runId), { method: 'POST', body: verb, signal });
  }

  /**
   * Follows a run: `now` at first, then `changed` whenever something of it has changed. `after` is the `id` of the last event before a cut.
   * The events also end when the gateway sends nothing for `silentMs`, not even that the connection lives.
   */
  async *runEvents(
    runId: string,
    { after, signal, silentMs = 40_000 }: { after?: string; signal?: AbortSignal; silentMs?: number } = {},
  ): AsyncGenerator<RunEvent> {
    const headers: Record<string, string> = after === undefined ? {} : { 'last-event-id': after };
    const { body } = await this.#send(`${runPath(runId)}/events`, { headers, signal });
    if (!body) return;
    let rest = '';
    // Not every browser can iterate over a stream.
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const cut = (): Promise<void> => reader.cancel().catch(() => {});
    try {
      for (;;) {
        const timer = setTimeout(cut, silentMs);
        const { done, value } = await reader.read().finally(() => clearTimeout(timer));
        if (done) return;
        const events = (rest + value).split('\n\n');
        rest = events.pop() ?? '';
        for (const event of events) {
          const [, name, id] = /^event: (now|changed)\nid: (.+)$/m.exec(event) ?? [];
          if ((name === 'now' || name === 'changed') && id !== undefined) yield { name, id };
        }
      }
    } finally {
      await cut();
    }
  }

  iterations(
    runId: string,
    query: { from?: number; limit?: number } = {},
    signal?: AbortSignal,
  ): Promise<IterationList> {
    return this.#json(`${runPath(runId)}/iterations`, { query, signal });
  }

  /** Reads when each attempt of a take's trials began and ended. Without `take` it is the newest. */
  timeline(
    runId: string,
    iteration: number,
    query: TrialFilter & { take?: number; offset?: number; limit?: number } = {},
    signal?: AbortSignal,
  ): Promise<Timeline> {
    return this.#json(`${runPath(runId)}/iterations/${iteration}/timeline`, { query, signal });
  }

  /** Lists groups with their trials; those whose rewards vary most come first. */
  groups(runId: string, query: GroupFilter = {}, signal?: AbortSignal): Promise<GroupList> {
    return this.#json(`${runPath(runId)}/groups`, { query, signal });
  }

  /** Counts what of a run is not trained, by reason. */
  dropped(runId: string, signal?: AbortSignal): Promise<DroppedWork> {
    return this.#json(`${runPath(runId)}/dropped`, { signal });
  }

  /** Searches the messages of a run's transcripts for all words, and phrases in quotation marks, of `q`; the newest trials first. */
  search(runId: string, query: { q: string; after?: string }, signal?: AbortSignal): Promise<SearchResult> {
    return this.#json(`${runPath(runId)}/search`, { query, signal });
  }

  /** Lists the engines, with the calls that this gateway process has under way there. */
  engines(signal?: AbortSignal): Promise<EngineList> {
    return this.#json('/engines', { signal });
  }

  /** `join` adds an engine to the deployment, or lets a drained one serve again; `drain` gives it no new calls; `leave` removes one that `join` added. */
  changeEngine(url: string, change: 'join' | 'drain' | 'leave', signal?: AbortSignal): Promise<EngineList> {
    return this.#json('/engines', { method: 'POST', body: { url, change }, signal });
  }

  /** Reads the state of the engines, and what of the runs under way works and waits. */
  deployment(signal?: AbortSignal): Promise<Deployment> {
    return this.#json('/deployment', { signal });
  }

  health(signal?: AbortSignal): Promise<{ status: 'ok' }> {
    return this.#json('/health', { signal });
  }

  async metrics(signal?: AbortSignal): Promise<string> {
    return (await this.#send('/metrics', { signal })).text();
  }

  // The gateway's own tests check that its replies have these types.
  async #json<T>(path: string, request: Request): Promise<T> {
    return (await (await this.#send(path, request)).json()) as T;
  }

  async *#lines<T>(path: string, request: Request): AsyncGenerator<T> {
    const { body } = await this.#send(path, request);
    if (!body) return;
    let rest = '';
    // Not every browser can iterate over a stream.
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const lines = (rest + value).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) yield JSON.parse(line) as T;
      }
    } finally {
      await reader.cancel().catch(() => {});
    }
  }

  async #send(path: string, { method = 'GET', query = {}, body, headers, key, signal }: Request): Promise<Response> {
    const { baseUrl, adminKey, fetch: send = fetch } = this.#options;
    const url = new URL(`${baseUrl.replace(/\/+$/, '')}${path}`);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value));
    const bearer = key ?? adminKey;
    const reply = await send(url, {
      method,
      headers: {
        ...headers,
        ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
    if (!reply.ok) throw await failureOf(reply);
    return reply;
  }
}

const runPath = (runId: string): string => `/runs/${encodeURIComponent(runId)}`;
const sessionPath = (trialId: string): string => `/sessions/${encodeURIComponent(trialId)}`;

async function failureOf(reply: Response): Promise<TrialgateApiError> {
  const text = await reply.text();
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string } };
    return new TrialgateApiError(reply.status, error.code, error.message);
  } catch {
    return new TrialgateApiError(reply.status, 'no_trialgate', text.slice(0, 200));
  }
}
