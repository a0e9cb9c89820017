import { Failure } from '../../failure.ts';
import { badRequest } from '../../json.ts';

export type JsonLimits = { maxBodyNodes: number; maxBodyDepth: number };

/** A body of at most this many bytes is cheap to parse, however many nodes it has. */
const SMALL = 32 * 2 ** 10;
const [QUOTE, COMMA, COLON, BACKSLASH, OPENING, CLOSING] = [0x22, 0x2c, 0x3a, 0x5c, 0x7b, 0x7d];
/** The bit that differs between `{` and `[`, and between `}` and `]`. */
const CURLY = 0x20;

/**
 * Counts the nodes of a JSON text as its bytes arrive, before anything is parsed, because the memory and time of a parse depend on the
 * nodes, not the bytes. Each bracket, comma and colon outside of strings counts as a node. It does not check that the text is valid JSON.
 */
export class JsonBounds {
  readonly #limits: JsonLimits;
  nodes = 0;
  #depth = 0;
  #inText = false;
  #escaped = false;

  constructor(limits: JsonLimits) {
    this.#limits = limits;
  }

  /** Throws a refusal that names the limit and its setting. */
  add(part: Uint8Array): void {
    const { maxBodyNodes, maxBodyDepth } = this.#limits;
    // Local variables, because fields would make the loop several times slower.
    let [nodes, depth, deepest, inText, escaped] = [this.nodes, this.#depth, 0, this.#inText, this.#escaped];
    let at = 0;
    while (at < part.length) {
      if (escaped) {
        escaped = false;
        at += 1;
      } else if (inText) {
        while (at < part.length && part[at] !== QUOTE && part[at] !== BACKSLASH) at += 1;
        if (at === part.length) break;
        if (part[at] === QUOTE) inText = false;
        else escaped = true;
        at += 1;
      } else {
        const byte = part[at] ?? 0;
        at += 1;
        if (byte === QUOTE) inText = true;
        else if (byte === COMMA || byte === COLON) nodes += 1;
        else if ((byte | CURLY) === OPENING) {
          nodes += 1;
          depth += 1;
          if (depth > deepest) deepest = depth;
        } else if ((byte | CURLY) === CLOSING) depth -= 1;
      }
    }
    [this.nodes, this.#depth, this.#inText, this.#escaped] = [nodes, depth, inText, escaped];
    if (deepest > maxBodyDepth)
      throw badRequest(`the body is nested deeper than ${maxBodyDepth} levels (setting max_body_depth)`);
    if (nodes > maxBodyNodes) throw tooComplex(maxBodyNodes);
  }
}

/** Returns the number of nodes of a whole body, or 0 if it is too small to have many. Throws as `JsonBounds` does. */
export function checkBounds(body: Uint8Array, limits: JsonLimits): number {
  if (body.length <= Math.min(SMALL, limits.maxBodyNodes) && !hasBrackets(body, limits.maxBodyDepth)) return 0;
  const bounds = new JsonBounds(limits);
  bounds.add(body);
  return bounds.nodes;
}

function hasBrackets(body: Uint8Array, moreThan: number): boolean {
  let count = 0;
  for (const bracket of [OPENING, OPENING ^ CURLY]) {
    for (let at = body.indexOf(bracket); at >= 0 && count <= moreThan; at = body.indexOf(bracket, at + 1)) count += 1;
  }
  return count > moreThan;
}

/** True when the error refuses a body with too many nodes. */
export const isTooComplex = (error: unknown): boolean =>
  error instanceof Failure && error.code === 'request_too_complex';

const tooComplex = (maxBodyNodes: number) =>
  new Failure(
    413,
    'request_too_complex',
    `the body has more than ${maxBodyNodes} values and keys, counted by brackets, commas and colons (setting max_body_nodes)`,
    { retryable: false },
  );
