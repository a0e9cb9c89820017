import { stringifyExact } from '../core/exact-json.ts';

type Connection = {
  /** Breaks the connection, for a runtime in which a body that ends with an error does not. */
  cut: (() => void) | undefined;
  log: (line: string) => void;
};

/** Streams values as they come, one a line. An error before the first line is thrown; later it breaks the connection. */
export async function jsonLines(values: AsyncGenerator<unknown>, { cut, log }: Connection): Promise<Response> {
  const encoder = new TextEncoder();
  let next: IteratorResult<unknown> | null = await values.next();
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          next ??= await values.next();
          if (next.done) return controller.close();
          controller.enqueue(encoder.encode(`${stringifyExact(next.value)}\n`));
          next = null;
        } catch (error) {
          log(`an export broke off: ${error instanceof Error ? error.message : String(error)}`);
          if (!cut) throw error;
          cut();
          controller.close();
        }
      },
      async cancel() {
        await values.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: { 'content-type': 'application/jsonl; charset=utf-8' } });
}
