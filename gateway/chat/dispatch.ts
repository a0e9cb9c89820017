import type { GatewayDeps } from '../deps.ts';
import { Failure } from '../failure.ts';
import { continueByIds } from '../token-in/continue-by-ids.ts';
import { ordinaryAnswer, post, type Answer } from './answer.ts';
import type { Call } from './call.ts';
import { engineBody } from './engine-body.ts';

/** Gives the call to a replica. One that is lost before it replied is passed over: nothing of the call was seen yet. */
export async function dispatch(deps: GatewayDeps, call: Call): Promise<Answer> {
  const { holdMs, strictModel } = deps.settings;
  let deadline = Date.now() + holdMs;
  for (let losses = 0; ; losses++) {
    if (losses === 1) deadline = Date.now() + holdMs;
    const lease = await deps.engines.lease({ id: call.trial.id, runId: call.trial.runId }, deadline, call.signal);
    const { replica } = lease;
    try {
      const model = (await replica.models())[0]?.id ?? null;
      if (strictModel && model !== call.request.model) throw unknownModel(call.request.model, model);
      call.lease = lease;
      const body = engineBody(call.request, call.sampled, { model, label: lease.label });
      return (await continueByIds(deps, call, lease, body)) ?? ordinaryAnswer(call, await post(call, replica, call.request.route, body));
    } catch (error) {
      lease.leave();
      if (call.signal.aborted || error instanceof Failure) throw error;
      deps.log(`call ${call.id}: engine ${replica.connection.url} was lost: ${error instanceof Error ? error.message : String(error)}`);
      replica.cool();
    }
  }
}

function unknownModel(asked: string | null, served: string | null): Failure {
  const message = `the model ${JSON.stringify(asked)} does not exist here: this trial's policy is ${JSON.stringify(served)}`;
  return new Failure(404, 'model_not_found', message, { retryable: false });
}
