import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { EngineServer, json } from './engine-server.ts';

const question = z.looseObject({ prompt: z.array(z.number()) });

/** Answers `prompt_logprobs` as vLLM does: -(id + 1) / 10 for each id. tests/e2e/real-engine.real.test.ts shows the answers of a real vLLM. */
export class ScriptedTeacher extends EngineServer {
  status = 200;
  body: string | null = null;
  readonly asked: unknown[] = [];

  protected async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const asked = question.parse(JSON.parse(await text(request)));
    this.asked.push(asked);
    if (request.url !== '/v1/completions' || this.status !== 200) return json(response, 'no such model', this.status);
    if (this.body !== null) return void response.end(this.body);
    const entries = asked.prompt.map((id, i) =>
      i === 0 ? null : { [id]: { logprob: -(id + 1) / 10, rank: 1, decoded_token: 'x' } },
    );
    return json(response, { choices: [{ index: 0, text: 'y', prompt_logprobs: entries }] });
  }
}
