import { useState } from 'react';
import { Link } from 'wouter';
import type { RunList, TrialgateClient } from '../../../clients/typescript/client.ts';
import { ago, reward, when } from '../format.ts';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { StartRun } from '../parts/start-run.tsx';
import { Badge } from '../parts/badge.tsx';
import { runPath } from '../parts/crumbs.tsx';
import { TrendLine } from '../parts/trend-line.tsx';
import { WideTable } from '../parts/wide-table.tsx';
import { useAnswer } from '../use-answer.ts';
import { useTitle } from '../use-title.ts';

const PAGE = 50;

export function RunsView() {
  const [limit, setLimit] = useState(PAGE);
  const answer = useAnswer({
    key: `runs ${limit}`,
    ask: (client, _before: RunList | null, signal) => readRuns(client, limit, signal),
  });
  // What a person has typed stays while a longer list is awaited.
  const [last, setLast] = useState<RunList | null>(null);
  if (answer.value !== null && answer.value !== last) setLast(answer.value);
  useTitle('Runs');
  return (
    <>
      <h1>Runs</h1>
      {last?.is_operable === true && <StartRun runs={last.runs.map(({ run_id: id }) => id)} onStart={answer.refresh} />}
      {last?.is_operable === false && (
        <p className="hint">
          A run begins from a run file: <code>npx trialgate train FILE</code> where the deployment runs.
        </p>
      )}
      <ShowAnswer answer={answer}>
        {({ runs, next_cursor: more }) => (
          <>
            {runs.length === 0 ? (
              <p>No runs yet.</p>
            ) : (
              <WideTable
                label="Runs"
                columns={[
                  { name: 'Run' },
                  { name: 'Status' },
                  { name: 'Iteration', isNumber: true },
                  { name: 'Newest reward mean', isNumber: true },
                  { name: 'Trend' },
                  { name: 'Started', className: 'less' },
                ]}
              >
                {runs.map((run) => (
                  <tr key={run.run_id}>
                    <th scope="row">
                      <Link href={runPath(run.run_id)}>{run.run_id}</Link>
                      {run.forked_from !== null && <span className="hint"> from {run.forked_from}</span>}
                    </th>
                    <td>
                      <Badge word={run.status} />
                      {run.reason !== null && (
                        <div className="hint reason">
                          <Recorded text={run.reason} />
                        </div>
                      )}
                    </td>
                    <td className="number">{run.iteration ?? '–'}</td>
                    <td className="number">{reward(run.rewards.at(-1))}</td>
                    <td>
                      <TrendLine
                        values={run.rewards}
                        label={`Mean rewards of ${run.run_id}: from ${reward(run.rewards[0])} to ${reward(run.rewards.at(-1))}`}
                      />
                    </td>
                    <td className="less" title={when(run.created_at)}>
                      {ago(run.created_at)}
                    </td>
                  </tr>
                ))}
              </WideTable>
            )}
            {more !== null && (
              <button type="button" onClick={() => setLimit(limit + PAGE)}>
                Show older runs
              </button>
            )}
          </>
        )}
      </ShowAnswer>
    </>
  );
}

/** The most rows of one answer. */
const MOST_ROWS = 200;

async function readRuns(client: TrialgateClient, limit: number, signal: AbortSignal): Promise<RunList> {
  const runs: RunList['runs'] = [];
  let cursor: string | null = null;
  let isOperable = false;
  do {
    const page: RunList = await client.runs(
      { cursor: cursor ?? undefined, limit: Math.min(MOST_ROWS, limit - runs.length) },
      signal,
    );
    runs.push(...page.runs);
    cursor = page.next_cursor;
    isOperable = page.is_operable;
  } while (cursor !== null && runs.length < limit);
  return { runs, next_cursor: cursor, is_operable: isOperable };
}
