import { Link } from 'wouter';
import type {
  Deployment,
  DeploymentEngine,
  DeploymentHost,
  DeploymentRun,
} from '../../../clients/typescript/client.ts';
import { count, duration, percent, short } from '../format.ts';
import { Badge } from '../parts/badge.tsx';
import { Crumbs, runPath, trialPath } from '../parts/crumbs.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { WideTable, type Column } from '../parts/wide-table.tsx';
import { useAnswer } from '../use-answer.ts';
import { useTitle } from '../use-title.ts';

const TITLE = 'Engines and workers';
const numbers = (...names: string[]): Column[] => names.map((name) => ({ name, isNumber: true }));

export function DeploymentView() {
  useTitle(TITLE);
  const answer = useAnswer({
    key: 'deployment',
    ask: (client, _before: Deployment | null, signal) => client.deployment(signal),
  });
  return (
    <>
      <Crumbs of={[]} />
      <h1>{TITLE}</h1>
      <ShowAnswer answer={answer}>
        {(deployment) => (
          <>
            <Engines deployment={deployment} />
            <Work deployment={deployment} />
            <Hosts deployment={deployment} />
          </>
        )}
      </ShowAnswer>
    </>
  );
}

type Props = { deployment: Deployment };

function Engines({ deployment: { engines, discovery, calls, now } }: Props) {
  const waits = [
    [calls.wait_for_room, 'for room in a KV cache'],
    [calls.wait_for_budget, 'for what other calls of their trial reserved of its budgets'],
  ] as const;
  return (
    <section>
      <h2>Engines</h2>
      <p className="hint">
        {count(calls.in_flight, 'call')} under way at this gateway
        {waits.map(([many, what]) => many > 0 && `, ${many} ${many === 1 ? 'waits' : 'wait'} ${what}`)}.
      </p>
      {discovery.map(
        ({ found_by: by, failing_since: since, reason }) =>
          since !== null && (
            <p key={by} className="trouble">
              Engines cannot be found by {by} for {duration(now - since)}: <Recorded text={reason ?? 'no reason'} />
            </p>
          ),
      )}
      {engines.length === 0 ? (
        <p>
          No engine: <code>npx trialgate engine join URL</code> adds one.
        </p>
      ) : (
        <WideTable
          label="Engines"
          columns={[
            { name: 'Engine' },
            { name: 'State' },
            { name: 'Run' },
            { name: 'Confirmed' },
            ...numbers('Trials', 'Calls', 'Running', 'Waiting', 'KV cache'),
          ]}
        >
          {engines.map((engine) => (
            <EngineRow key={engine.url} engine={engine} now={now} />
          ))}
        </WideTable>
      )}
    </section>
  );
}

/** A load that is older is shown with its age: an engine is asked only when calls come. */
const OLD_SECONDS = 10;

function EngineRow({ engine, now }: { engine: DeploymentEngine; now: number }) {
  const { load, confirmed, run_id: runId } = engine;
  const [word, why] = stateOf(engine, now);
  const age = load === null ? 0 : now - load.at;
  return (
    <tr>
      <th scope="row">
        <Recorded text={engine.url} />
        {engine.found_by !== null && <div className="hint">found by {engine.found_by}</div>}
      </th>
      <td>
        <Badge word={word} />
        {why !== null && <div className="hint reason">{why}</div>}
        {engine.trouble !== null && (
          <div className="hint reason">
            The last call did not take it: <Recorded text={engine.trouble} />
          </div>
        )}
      </td>
      <td>{runId === null ? '–' : <Link href={runPath(runId)}>{runId}</Link>}</td>
      <td>
        {confirmed === null ? '–' : `version ${confirmed.version}`}
        {confirmed !== null && <div className="hint">{duration(now - confirmed.at)} ago</div>}
      </td>
      <td className="number">
        {engine.trials}
        {engine.escapes > 0 && <div className="hint">{engine.escapes} left it</div>}
      </td>
      <td className="number">
        {engine.calls_in_flight}
        {engine.longest_call_at !== null && (
          <div className="hint">
            {engine.long_calls} long, up to {duration(now - engine.longest_call_at)}
          </div>
        )}
      </td>
      <td className="number">{load === null ? '–' : load.running}</td>
      <td className="number">{load === null ? '–' : load.waiting}</td>
      <td className="number">
        {load === null ? '–' : percent(load.kv_use)}
        {load !== null && load.kv_tokens !== null && <div className="hint">of {short(load.kv_tokens)} tokens</div>}
        {load !== null && age > OLD_SECONDS && <div className="hint">{duration(age)} ago</div>}
      </td>
    </tr>
  );
}

/** Returns an engine's state as a word, and what there is to say about it. */
function stateOf(engine: DeploymentEngine, now: number): [word: string, why: string | null] {
  const { state, awaits, awaits_since: since, weight_version: version, drained_by_hand: isByHand } = engine;
  if (state === 'left') return ['left', null];
  if (state === 'draining') return ['draining', isByHand ? 'a person drains it' : 'what names it says so'];
  const age = since === null ? '' : ` for ${duration(now - since)}`;
  if (awaits === 'publication') return ['publication', `${version ?? 'a version'} is being published to it${age}`];
  if (awaits === 'repair')
    return ['not_confirmed', `other engines serve ${version ?? 'its version'}, it awaits a repair${age}`];
  return [engine.trouble === null ? 'serving' : 'failing', null];
}

function Work({ deployment: { runs, now } }: Props) {
  return (
    <section>
      <h2>Trials under way and queues</h2>
      {runs.length === 0 ? (
        <p>No run is under way.</p>
      ) : (
        <WideTable
          label="Trials under way and queues"
          columns={[
            { name: 'Run' },
            { name: 'Status' },
            ...numbers('Open groups', 'Trials under way', 'Being verified', 'Between attempts', 'Stragglers'),
            { name: 'Wait for a slot', isNumber: true },
            { name: 'Longest' },
          ]}
        >
          {runs.map((run) => (
            <RunRow key={run.run_id} run={run} now={now} />
          ))}
        </WideTable>
      )}
    </section>
  );
}

function RunRow({ run, now }: { run: DeploymentRun; now: number }) {
  return (
    <tr>
      <th scope="row">
        <Link href={runPath(run.run_id)}>{run.run_id}</Link>
      </th>
      <td>
        <Badge word={run.status} />
        {run.reason !== null && (
          <div className="hint reason">
            <Recorded text={run.reason} />
          </div>
        )}
        {run.waits_for_engines_since !== null && (
          <div className="hint reason">has waited for engines for {duration(now - run.waits_for_engines_since)}</div>
        )}
      </td>
      <td className="number">
        {run.open_groups}
        {run.unclaimed_groups > 0 && <div className="hint">{run.unclaimed_groups} more not claimed</div>}
      </td>
      <td className="number">{run.trials_under_way}</td>
      <td className="number">{run.verifying}</td>
      <td className="number">{run.between_attempts}</td>
      <td className="number">{run.stragglers}</td>
      <td className="number">{run.unopened_trials}</td>
      <td>
        {run.oldest === null ? (
          '–'
        ) : (
          <>
            <Link href={trialPath(run.oldest.trial_id)}>{run.oldest.trial_id}</Link>{' '}
            <span className="hint">for {duration(now - run.oldest.opened_at)}</span>
          </>
        )}
      </td>
    </tr>
  );
}

function Hosts({ deployment: { hosts, now } }: Props) {
  return (
    <section>
      <h2>Hosts</h2>
      <p className="hint">
        Of groups of the newest iterations and of evaluations that are open or ended within a day. A sandbox is under
        way from the opening of its attempt to the end.
      </p>
      {hosts.length === 0 ? (
        <p>No attempt has been opened yet.</p>
      ) : (
        <WideTable
          label="Hosts"
          columns={[
            { name: 'Host' },
            { name: 'Sandboxes under way' },
            ...numbers('Ended attempts', 'Lost by the host'),
            { name: 'Last end' },
          ]}
        >
          {hosts.map((host) => (
            <HostRow key={host.host} host={host} now={now} />
          ))}
        </WideTable>
      )}
    </section>
  );
}

function HostRow({ host, now }: { host: DeploymentHost; now: number }) {
  const { sandboxes, under_way: underWay, last_at: last } = host;
  return (
    <tr>
      <th scope="row">
        <Recorded text={host.host} />
      </th>
      <td>
        {underWay === 0 ? (
          'none'
        ) : (
          <details>
            <summary>{underWay}</summary>
            <ul className="plain">
              {sandboxes.map((sandbox) => (
                <li key={sandbox.trial_id}>
                  <Link href={trialPath(sandbox.trial_id)}>{sandbox.trial_id}</Link>{' '}
                  <span className="hint">
                    {sandbox.attempt > 1 && `attempt ${sandbox.attempt}, `}
                    {sandbox.verifying ? 'is verified' : 'opens or works'}, for {duration(now - sandbox.opened_at)}
                  </span>
                </li>
              ))}
            </ul>
            {underWay > sandboxes.length && <div className="hint">and {underWay - sandboxes.length} younger ones</div>}
          </details>
        )}
      </td>
      <td className="number">{host.attempts}</td>
      <td className="number">{host.lost}</td>
      <td>{last === null ? '–' : `${duration(now - last)} ago`}</td>
    </tr>
  );
}
