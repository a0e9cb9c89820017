import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { loggerPython } from '../../../cli/install/loggers.ts';
import { REPOSITORY } from '../../../core/repository.ts';

const key = { trace: z.string(), span: z.string() };
const received = z.object({
  spans: z.array(
    z.object({
      ...key,
      parent: z.string(),
      name: z.string(),
      kind: z.number(),
      start: z.number(),
      end: z.number(),
      /** Each with its kind in OTLP. */
      attributes: z.record(z.string(), z.tuple([z.string(), z.unknown()])),
      links: z.array(z.object(key)),
      error: z.string().nullable(),
      resource: z.record(z.string(), z.unknown()),
    }),
  ),
  headers: z.record(z.string(), z.string()),
});
export type Received = z.output<typeof received>;
export type ReceivedSpan = Received['spans'][number];

type Faults = { status?: number; refuse?: string; stumble?: string[]; partial?: boolean; drip?: boolean };

/** A receiver of OTLP over HTTP, which decodes what comes with OpenTelemetry's own messages (`loggers/otlp_receiver.py`). */
export type OtlpReceiver = {
  url: string;
  received(): Promise<Received>;
  /** Says how it fails from now on. */
  fail(faults: Faults): Promise<void>;
  stop(): Promise<void>;
};

export async function startReceiver(): Promise<OtlpReceiver> {
  // It ends with its input, also when this process is killed.
  const program =
    'import os, sys, threading; threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start(); import runpy; runpy.run_path(sys.argv[1])';
  const child = spawn(await loggerPython('otel'), ['-c', program, join(REPOSITORY, 'loggers/otlp_receiver.py')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout });
  const { value: port } = await lines[Symbol.asyncIterator]().next();
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    received: async () => received.parse(await (await fetch(url)).json()),
    async fail(faults) {
      await fetch(`${url}/faults`, { method: 'POST', body: JSON.stringify(faults) });
    },
    async stop() {
      child.stdin.end();
      await ended;
      lines.close();
    },
  };
}
