import { useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import type {
  DropReason,
  GroupFilter,
  GroupList,
  ListedGroup,
  TrialgateClient,
} from '../../../clients/typescript/client.ts';
import { count, duration, reward, short, taskName } from '../format.ts';
import { Badge, outcomeWord } from '../parts/badge.tsx';
import { Crumbs, runPath, timelinePath, trialPath, withSearch } from '../parts/crumbs.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { filterOf, isFiltered, TrialFilterForm } from '../parts/trial-filter.tsx';
import { WideTable } from '../parts/wide-table.tsx';
import { hasEnded } from '../has-ended.ts';
import { useAnswer } from '../use-answer.ts';
import { useTitle } from '../use-title.ts';

const PAGE = 50;

export function IterationView({ runId, iteration }: { runId: string; iteration: number }) {
  const [search] = useSearchParams();
  const take = Number(search.get('take')) || undefined;
  const title = take === undefined ? `Iteration ${iteration}` : `Iteration ${iteration}, take ${take}`;
  return <Groups runId={runId} title={title} wanted={{ iteration, take }} timeline={timelinePath(runId, iteration)} />;
}

export function EvaluationView({ runId, evaluation }: { runId: string; evaluation: string }) {
  return <Groups runId={runId} title={`Evaluation ${evaluation}`} wanted={{ evaluation }} />;
}

const DROPPED: readonly DropReason[] = ['no_spread', 'stale', 'failed'];

/** One group (`?group=`), those dropped for a reason (`?dropped=`), or all of a run. */
export function GroupsView({ runId }: { runId: string }) {
  const [search] = useSearchParams();
  const group = search.get('group');
  const dropped = DROPPED.find((reason) => reason === search.get('dropped'));
  if (group !== null) return <Groups runId={runId} title={`Group ${group}`} wanted={{ group_id: group }} />;
  if (dropped) return <Groups runId={runId} title={`Groups dropped: ${dropped}`} wanted={{ dropped }} />;
  return <Groups runId={runId} title="Groups" wanted={{}} />;
}

type GroupsProps = {
  runId: string;
  title: string;
  wanted: GroupFilter;
  /** The path of the timeline of the same trials. */ timeline?: string;
};

function Groups({ runId, title, wanted, timeline }: GroupsProps) {
  const [limit, setLimit] = useState(PAGE);
  const [search] = useSearchParams();
  const filter = filterOf(search);
  const asked = { ...wanted, ...filter };
  // JSON has no NaN, and names it as nothing.
  const key = `groups ${runId} ${JSON.stringify(wanted)} ${Object.values(filter).join('\n')} ${limit}`;
  const answer = useAnswer({
    key,
    ask: (client, _before: GroupList | null, signal) => readGroups(client, runId, asked, limit, signal),
    isFinal: ({ run_status: status }) => hasEnded(status),
    runOf: () => runId,
  });
  useTitle(`${title}, ${runId}`);
  return (
    <>
      <Crumbs of={[[runId, runPath(runId)]]} />
      <h1>{title}</h1>
      <TrialFilterForm />
      <ShowAnswer answer={answer}>
        {({ groups, next_offset: more, run_status: status }) => (
          <>
            <p className="hint">
              {groups.length === 0
                ? isFiltered(filter)
                  ? 'No group has such trials.'
                  : 'There are no such groups.'
                : `${count(groups.length, 'group')}${more === null ? '' : ' of more'}, those whose rewards vary most first.`}
              {timeline !== undefined && (
                <>
                  {' '}
                  <Link href={withSearch(timeline, search)}>Timeline</Link>
                </>
              )}
            </p>
            {groups.map((group) => (
              <Group key={group.group_id} group={group} hasEnded={hasEnded(status)} />
            ))}
            {more !== null && (
              <button type="button" onClick={() => setLimit(limit + PAGE)}>
                Show more groups
              </button>
            )}
          </>
        )}
      </ShowAnswer>
    </>
  );
}

/** The most groups of one answer. */
const MOST_GROUPS = 200;

async function readGroups(
  client: TrialgateClient,
  runId: string,
  wanted: GroupFilter,
  limit: number,
  signal: AbortSignal,
): Promise<GroupList> {
  for (let offset = 0, groups: ListedGroup[] = []; ;) {
    const page = await client.groups(
      runId,
      { ...wanted, offset, limit: Math.min(MOST_GROUPS, limit - offset) },
      signal,
    );
    groups = [...groups, ...page.groups];
    offset = page.next_offset ?? limit;
    if (offset < limit) continue;
    // Rewards that came meanwhile may have moved a group to the next page.
    const once = new Map(groups.map((group) => [group.group_id, group]));
    return { ...page, groups: [...once.values()] };
  }
}

type GroupProps = { group: ListedGroup; hasEnded: boolean };

function Group({ group, hasEnded: isOver }: GroupProps) {
  const rewards = group.trials.flatMap(({ reward: own }) => own ?? []);
  const { mean } = group;
  const [low, high] = [Math.min(0, ...rewards), Math.max(1, ...rewards)];
  return (
    <section className="group card">
      <h2>
        <Recorded text={taskName(group.task)} /> <span className="hint">{group.group_id}</span>
      </h2>
      <p className="facts">
        {group.dropped !== null && <Badge word={group.dropped} title="This group is in no batch" />}{' '}
        {group.superseded && <Badge word="superseded" title="Its take was redone: nothing of it counts" />}{' '}
        {mean !== null && `mean ${reward(mean)}, variance ${short(group.variance)}, `}
        {count(group.trials.length, 'trial')}, policy version {group.policy_version}, agent{' '}
        <Recorded text={group.agent} />
        {(group.take ?? 1) > 1 && `, take ${group.take}`}
        {group.ended_at === null ? (isOver ? '' : ', under way') : `, ${duration(group.ended_at - group.opened_at)}`}
      </p>
      <WideTable
        label={`Trials of ${group.group_id}`}
        columns={[
          { name: 'Trial' },
          { name: 'Outcome' },
          { name: 'Reward', isNumber: true },
          { name: `Reward, from ${short(low)} to ${short(high)}`, className: 'bar-column' },
          {
            name: 'Reward minus group mean',
            isNumber: true,
            title: 'The reward less the group’s mean: what an advantage is made of',
          },
          { name: 'Tokens', isNumber: true },
          { name: 'Calls', isNumber: true },
          { name: 'Time', isNumber: true },
        ]}
      >
        {group.trials.map((trial) => (
          <tr key={trial.trial_id}>
            <th scope="row">
              <Link href={trialPath(trial.trial_id)}>{trial.trial_index ?? trial.trial_id}</Link>
              {trial.attempt > 1 && <span className="hint"> attempt {trial.attempt}</span>}
            </th>
            <td>
              <Badge word={outcomeWord(trial.outcome, isOver)} />
              {trial.reason !== null && (
                <div className="hint reason">
                  <Recorded text={trial.reason} />
                </div>
              )}
            </td>
            <td className="number">{reward(trial.reward)}</td>
            <td className="bar-column">
              {trial.reward !== null && (
                <meter min={low} max={high} value={trial.reward} aria-label={`Reward ${reward(trial.reward)}`} />
              )}
            </td>
            <td className="number">{trial.reward === null || mean === null ? '–' : signed(trial.reward - mean)}</td>
            <td className="number">{trial.tokens.toLocaleString('en')}</td>
            <td className="number">{trial.calls}</td>
            <td className="number">{duration(trial.seconds)}</td>
          </tr>
        ))}
      </WideTable>
    </section>
  );
}

const signed = (value: number): string => (value < 0 ? `−${(-value).toFixed(3)}` : `+${value.toFixed(3)}`);
