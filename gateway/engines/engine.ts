import type { KeepThinking } from '../../core/sampling-choices.ts';
import type { RecordedTurn } from '../conversations/conversations.ts';
import type { JsonObject } from '../json.ts';
import type { CompletionKind, Wants } from './completion.ts';
import type { EngineConnection } from './connection.ts';
import type { Exchange } from './exchange.ts';
import type { Lease } from './lease.ts';
import type { EngineLoad } from './load.ts';
import type { CallResult, ChoiceResult } from './call-result.ts';

/**
 * A kind of engine: how a server that runs a model is asked, and what its replies say. It holds no state; what a replica said is remembered
 * by `Replica`. Requests and replies have the form of OpenAI's completions (`completion.ts`), whatever the engine's own routes are.
 */
export interface Engine {
  /** The word before its URLs (`openai+http://…`). URLs without one are of the kind that can be trained. */
  readonly name: string;
  /** The reason that no call it answers can be trained on. Null when some can. */
  readonly whyUntrainable: string | null;
  /** The fields of its own that it takes in addition to OpenAI's. */
  readonly fields: EngineFields;

  /** Returns the weight version that the engine says it has, or null when it has no such route. */
  weightVersion: (connection: EngineConnection, signal: AbortSignal) => Promise<string | null>;
  models: (connection: EngineConnection, signal: AbortSignal) => Promise<Model[]>;
  /** Returns null when it does not say. */
  load: (connection: EngineConnection, signal: AbortSignal) => Promise<EngineLoad | null>;
  isAlive: (connection: EngineConnection, signal: AbortSignal) => Promise<boolean>;
  /** Returns null when it does not say. */
  logprobsMode: (
    connection: EngineConnection,
    model: string | null,
    signal: AbortSignal,
  ) => Promise<LogprobsMode | null>;
  /** Returns null when conversations cannot be continued by ids on this engine. Rejects when it cannot be reached. */
  traits: (connection: EngineConnection, model: string | null, signal: AbortSignal) => Promise<EngineTraits | null>;

  /**
   * Returns the request's fields as they take effect on an engine with these traits. `constrained` is true when the reply's form is forced.
   * The `filledIn` fields are neutral because nobody chose them.
   */
  inForce: (
    sampled: JsonObject,
    traits: EngineTraits | null,
    constrained: boolean,
    filledIn: readonly string[],
  ) => JsonObject;
  /** Returns over which ids the probabilities of a call with these fields are a softmax. `constrained` is true when the reply's form is forced. */
  sampledFrom: (inForce: JsonObject, mode: LogprobsMode | null, constrained: boolean) => SampledFrom;

  /** Returns the request as this replica's model can take it, and what had to be left out. */
  prepare: (lease: Lease, request: GenerationRequest) => Promise<PreparedRequest>;
  /** Asks for the reply. Rejects with what the agent is told, or with an `EngineFailed` when another replica may take the call. */
  generate: (exchange: Exchange, request: GenerationRequest, prepared: JsonObject) => Promise<Answer>;
  /** Counts the tokens of a chat's prompt. Samples nothing. */
  countTokens: (lease: Lease, prompt: JsonObject, signal: AbortSignal) => Promise<number>;

  /** Returns whether the gateway or the trainer sends this request to it. A relay worker passes on nothing else. */
  isRelayed: (method: 'GET' | 'POST', path: string, body: string) => boolean;
  /** Returns the keys, from the outermost on, under which a request for this route names the folder of weights to load; null for a route that loads none. */
  weightsFolderIn: (path: string) => readonly string[] | null;
}

export type EngineFields = {
  /** Fields that force the form of a reply, with the words that tell a model the same. */
  grammars: ReadonlyMap<string, (value: unknown) => string>;
  /** Sampling settings that all protocols pass on. */
  sampling: readonly string[];
};

/** A model that an engine lists. `root` is the one that it was started with. */
export type Model = { id: string; created: number | null; contextLength: number | null; root: string };

/** The distribution of an engine's log-probabilities: the one that it sampled from, or the one before temperature and truncation. */
export type LogprobsMode = 'processed_logprobs' | 'raw_logprobs';

/** The tool calls that an engine holds to their schema by a grammar, even if the model may call no tool. */
export type BindsTools = 'never' | 'strict' | 'always';

/**
 * The ids over which a call's probabilities are a softmax at its temperature: all ids, those of its sampling mask, or a set that the
 * trainer cannot compute.
 */
export type SampledFrom = 'all' | 'mask' | 'unknown';

/** The properties of an engine that the gateway needs to continue conversations by ids. */
export type EngineTraits = {
  /** The ids that the chat template writes after a reply. */
  closing: number[];
  /** True when it takes tool calls or reasoning out of the text, so that a stream of plain text would differ from its own reply. */
  parses: boolean;
  /** True when a request with stop strings goes by ids also where it parses. */
  stopsByIds: boolean;
  /** The largest `top_k` with which it returns the ids that could be sampled at each token. It is 0 when it returns none. */
  maskedTopK: number;
  /** True when it returns the experts that a mixture chose for each token. */
  experts: boolean;
  bindsTools: BindsTools;
  /** False when the chat template shows the model none of a request's tools. Null when that is not known: the engine rendered no tool. */
  showsTools: boolean | null;
};

export type GenerationRequest = {
  kind: CompletionKind;
  /** The agent's request in OpenAI's form, with the run's sampling in force on this engine. */
  body: JsonObject;
  stream: boolean;
  /** The number of replies. */
  n: number;
  wants: Wants;
  /** The recorded turn that it continues, and how many of its messages that turn covers. */
  parent: (RecordedTurn & { messages: number }) | null;
  /** Other turns with the same prompt and reply. */
  ambiguousParents: readonly RecordedTurn[];
  traits: EngineTraits | null;
  keepThinking: KeepThinking;
  /** True when the model has thought in this trial, apart from its text. */
  hasThinking: boolean;
  /** Throws when the trial allows no prompt of this length. */
  checkPrompt: (prompt: readonly number[] | null) => void;
};

/** `leftOut` has the messages that lost a part, each with the kind of the part. */
export type PreparedRequest = { body: JsonObject; leftOut: { feature: string; messageIndex: number }[] };

/** A reply under way: it is read whole or by its chunks. */
export type Answer = {
  whole: () => Promise<WholeReply>;
  /** Yields chunks that arrived together as one list. */
  chunks: () => AsyncIterable<Chunk[]>;
  /** Returns what was sampled although no reply came of it. */
  sampled: () => CallResult;
  /** The turn that it continues, if that is one of the ambiguous ones. */
  parent?: RecordedTurn;
};

/** `shown` is the reply as its agent asked for it. */
export type WholeReply = { result: CallResult; shown: JsonObject };

export type Chunk = TokenChunk | ObjectChunk;

/** A part of a reply. `shown` is the chunk as the agent asked for it; `sampled` belongs to its choices, in their order. */
export type ObjectChunk = {
  shown: JsonObject;
  prompt: number[] | null;
  usage: unknown;
  sampled: readonly Omit<ChoiceResult, 'finishReason'>[];
};

/** One more token of one reply. Most chunks are nothing else, so they are read without creating objects. */
export interface TokenChunk {
  readonly index: number;
  readonly content: string;
  readonly tokenId: number;
  readonly logprob: number;
  /** True for a text completion, false for a chat. */
  readonly isText: boolean;
  /** The chunk's JSON without ids and log-probabilities. */
  readonly shown: string;
  asObject: () => ObjectChunk;
}

export const isToken = (chunk: Chunk): chunk is TokenChunk => 'tokenId' in chunk;
export const asObject = (chunk: Chunk): ObjectChunk => (isToken(chunk) ? chunk.asObject() : chunk);
