import { Link } from 'wouter';
import type { DroppedWork } from '../../../clients/typescript/client.ts';
import { count } from '../format.ts';
import { Crumbs, runPath, trialPath } from '../parts/crumbs.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { useAnswer } from '../use-answer.ts';
import { useTitle } from '../use-title.ts';

const WHY: Readonly<Record<string, string>> = {
  no_spread: 'All rewards of the group were equal.',
  stale: 'The group was older than the run allows.',
  failed: 'No trial of the group had a valid reward.',
  truncated: 'A budget, a deadline or the model’s context ended the trial.',
  timed_out: 'The agent used up its own time.',
  agent_error: 'The agent failed.',
  verifier_error: 'The verifier failed.',
  infra_error: 'The deployment failed; the trial was tried again as often as the run allows.',
  cancelled: 'The run was stopped, or the trial was a straggler.',
};

export function DroppedView({ runId }: { runId: string }) {
  useTitle(`Dropped work, ${runId}`);
  const answer = useAnswer({
    key: `dropped ${runId}`,
    ask: (client, _before: DroppedWork | null, signal) => client.dropped(runId, signal),
    // It counts all trials of the run, which takes long in a large one: a person asks for it again.
    isFinal: () => true,
  });
  return (
    <>
      <Crumbs of={[[runId, runPath(runId)]]} />
      <h1>Dropped work</h1>
      <ShowAnswer answer={answer}>
        {(dropped) => (
          <>
            <Reasons
              title="Groups in no batch"
              rows={dropped.groups.map(({ reason, groups }) => ({
                reason,
                many: count(groups, 'group'),
                groups: `${runPath(runId)}/groups?dropped=${reason}`,
              }))}
            />
            <Reasons
              title="Trials that were not scored"
              hint="Run settings decide whether truncated trials and those whose agent failed are trained."
              rows={dropped.trials.map(({ outcome, trials, examples }) => ({
                reason: outcome,
                many: count(trials, 'trial'),
                trials: examples,
              }))}
            />
            <Reasons
              title="Attempts that ended by an infrastructure error"
              hint="Their trials were tried again."
              rows={dropped.attempts.map(({ reason, evidence, attempts, trials }) => ({
                reason: evidence === null ? reason : `${reason} (shown by: ${evidence})`,
                many: count(attempts, 'attempt'),
                trials,
              }))}
            />
            <Reasons
              title="Calls that are not trained"
              hint={`Of the iterations from ${dropped.calls_since} on.`}
              rows={dropped.calls.map(({ reason, calls, trials }) => ({
                reason,
                many: count(calls, 'call'),
                trials,
              }))}
            />
          </>
        )}
      </ShowAnswer>
    </>
  );
}

type Row = { reason: string; many: string; groups?: string; trials?: string[] };

function Reasons({ title, hint, rows }: { title: string; hint?: string; rows: Row[] }) {
  return (
    <section>
      <h2>{title}</h2>
      {hint !== undefined && rows.length > 0 && <p className="hint">{hint}</p>}
      {rows.length === 0 ? (
        <p>None.</p>
      ) : (
        <ul className="reasons">
          {rows.map(({ reason, many, groups, trials = [] }) => (
            <li key={reason} className="card">
              <strong>{many}</strong>: <Recorded text={reason.replaceAll('_', ' ')} />
              {Object.hasOwn(WHY, reason) && <span className="hint"> {WHY[reason]}</span>}
              {groups !== undefined && (
                <>
                  {' '}
                  <Link href={groups}>show them</Link>
                </>
              )}
              {trials.length > 0 && (
                <div className="links">
                  {trials.map((trial) => (
                    <Link key={trial} href={trialPath(trial)}>
                      {trial}
                    </Link>
                  ))}
                </div>
              )}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
