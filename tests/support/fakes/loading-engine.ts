import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { json } from './engine-server.ts';
import { FakeEngine } from './fake-engine.ts';

const control = z.object({
  new_version: z.string().optional(),
  kwargs: z.object({ weights_path: z.string() }).optional(),
});

/**
 * `fails`: each reload of a version named here fails, and so does each route, after it has done its work. `ignores`: a reload says that it has
 * loaded and changes nothing. `holds`: `/weight_checker` does not answer until another behaviour is set.
 */
const behaviour = z.object({ fails: z.array(z.string()), ignores: z.boolean(), holds: z.boolean() });

/** A fake engine with vLLM's control routes. It remembers which folder it loaded last, and `/fake` changes how it behaves. */
export class LoadingEngine extends FakeEngine {
  #loaded = 'base';
  #isPaused = false;
  #behaviour: z.output<typeof behaviour> = { fails: [], ignores: false, holds: false };

  /** The log-probabilities of a prompt follow from what was loaded. */
  protected override ownReply(_path: string, { prompt, prompt_logprobs: wanted }: Record<string, unknown>): unknown {
    if (wanted === undefined || !Array.isArray(prompt)) return undefined;
    const entries = prompt
      .slice(1)
      .map((id, i) => ({ [String(id)]: { logprob: -(this.#loaded.charCodeAt(i) || 1) / 100 } }));
    return { choices: [{ prompt_logprobs: [null, ...entries] }] };
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').split('?')[0] ?? '';
    if (path === '/fake') {
      this.#behaviour = behaviour.parse(JSON.parse(await text(request)));
      return json(response, { loaded: this.#loaded, paused: this.#isPaused, weight_version: this.weightVersion });
    }
    const config = { model_config: { hf_overrides: {} }, parallel_config: {}, device_config: { device: 'cuda' } };
    const answers: Record<string, unknown> = {
      '/server_info': { vllm_config: config },
      '/weight_checker': { checksums: { tensor: this.#loaded } },
      '/pause': {},
      '/resume': {},
      '/reset_prefix_cache': {},
    };
    if (path === '/pause' || path === '/resume') this.#isPaused = path === '/pause';
    if (path === '/weight_checker') while (this.#behaviour.holds) await pause(10);
    if (this.#behaviour.fails.includes(path)) return json(response, { error: `${path} fails` }, 400);
    if (path === '/model_info') return json(response, { detail: 'Not Found' }, 404);
    if (path in answers) return json(response, answers[path]);
    if (path !== '/update_weight_version' && path !== '/collective_rpc') return super.respond(request, response);
    const body = control.parse(JSON.parse(await text(request)));
    if (body.new_version !== undefined) this.weightVersion = body.new_version;
    const folder = body.kwargs?.weights_path;
    if (folder !== undefined) {
      if (this.#behaviour.fails.some((version) => folder.endsWith(`/${version}`)))
        return json(response, { error: 'out of memory' }, 500);
      if (!this.#behaviour.ignores) this.#loaded = folder;
    }
    return json(response, {});
  }
}
