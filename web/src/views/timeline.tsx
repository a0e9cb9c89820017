import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef, useState, type CSSProperties } from 'react';
import { Link, useSearchParams } from 'wouter';
import type {
  Timeline,
  TimelineGroup,
  TimelineTrial,
  TrialFilter,
  TrialgateClient,
} from '../../../clients/typescript/client.ts';
import { count, exactDuration, taskName, when } from '../format.ts';
import { hasEnded } from '../has-ended.ts';
import { endOf, isBetweenAttempts, isStraggler, lanesOf, type Lane, type LaneName } from '../lanes.ts';
import { Badge, outcomeWord } from '../parts/badge.tsx';
import { Crumbs, iterationPath, runPath, trialPath, withSearch } from '../parts/crumbs.tsx';
import { filterOf, isFiltered, TrialFilterForm } from '../parts/trial-filter.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { useAnswer } from '../use-answer.ts';
import { useTitle } from '../use-title.ts';
import { useTop } from '../use-top.ts';

const NAMES: Record<LaneName, string> = {
  waits: 'waits',
  opens: 'opens',
  open: 'opens or agent',
  agent: 'agent',
  verifies: 'verifies',
};

/** An iteration, or one take of it, by time: a bar for each trial. */
export function TimelineView({ runId, iteration }: { runId: string; iteration: number }) {
  const [search] = useSearchParams();
  const take = Number(search.get('take')) || undefined;
  const title = `Timeline of iteration ${iteration}${take === undefined ? '' : `, take ${take}`}`;
  useTitle(`${title}, ${runId}`);
  const filter = filterOf(search);
  const answer = useAnswer({
    key: `timeline ${runId} ${iteration} ${take} ${Object.values(filter).join('\n')}`,
    ask: (client, _before: Timeline | null, signal) => readTimeline(client, { runId, iteration, take, filter }, signal),
    isFinal: isOver,
    runOf: () => runId,
  });
  return (
    <>
      <Crumbs
        of={[
          [runId, runPath(runId)],
          [`iteration ${iteration}`, withSearch(iterationPath(runId, iteration), search)],
        ]}
      />
      <h1>{title}</h1>
      <TrialFilterForm />
      <ShowAnswer answer={answer}>{(line) => <Drawn line={line} isFiltered={isFiltered(filter)} />}</ShowAnswer>
    </>
  );
}

/** Nothing of a run that has ended, or of a take that another one superseded, goes on. */
const isCut = ({ run_status: run, status }: Timeline): boolean => hasEnded(run) || status === 'superseded';

/** The trials of an ended take that still run, as stragglers do, may end later. */
const isOver = (line: Timeline): boolean => isCut(line) || (line.ended_at !== null && line.all_trials?.running === 0);

/** Asks for all groups, page by page. */
async function readTimeline(
  client: TrialgateClient,
  { runId, iteration, take, filter }: { runId: string; iteration: number; take?: number; filter: TrialFilter },
  signal: AbortSignal,
): Promise<Timeline> {
  const pageAt = (offset: number) => client.timeline(runId, iteration, { take, ...filter, offset, limit: 500 }, signal);
  const first = await pageAt(0);
  const groups = new Map<string, TimelineGroup>();
  for (let page = first; ; page = await pageAt(page.next_offset)) {
    for (const group of page.groups) groups.set(group.group_id, group);
    // The first page was read first, so a take that it calls over has no change after it.
    if (page.next_offset === null) return { ...first, groups: [...groups.values()] };
  }
}

type Row =
  | { kind: 'group'; group: TimelineGroup }
  | { kind: 'trial'; group: TimelineGroup; trial: TimelineTrial; lanes: Lane[] };
type Mark = { at: number; text: string };

/** What has no end yet ends now, or with the last that the record has of a take that is cut. */
const untilOf = (line: Timeline): number =>
  isCut(line) ? Math.max(line.opened_at, line.ended_at ?? 0, line.all_trials?.last_at ?? 0) : line.now;

function drawingOf(line: Timeline) {
  const until = untilOf(line);
  const rows = line.groups.flatMap((group): Row[] => [
    { kind: 'group', group },
    ...group.trials.map((trial): Row => ({
      kind: 'trial',
      group,
      trial,
      lanes: lanesOf(trial, group, { until, isOver: isCut(line) }),
    })),
  ]);
  const lanes = rows.flatMap((row) => (row.kind === 'trial' ? row.lanes : []));
  const start = line.groups.reduce((least, group) => Math.min(least, group.opened_at), line.opened_at);
  // The same for every filter, so that a bar keeps its length.
  const last = Math.max(line.ended_at ?? 0, line.all_trials?.last_at ?? 0, isOver(line) ? start : line.now);
  const marks: Mark[] = [
    ...(line.batch_at === null ? [] : [{ at: line.batch_at, text: 'batch made' }]),
    ...(line.trained_at === null ? [] : [{ at: line.trained_at, text: `version ${line.trained_version} trained` }]),
    // One that a replica confirmed again after the take has no line, because the record has only the later time.
    ...line.publications
      .filter(({ last_at: at }) => at <= last)
      .map(({ version, replicas, last_at: at }) => ({
        at,
        text: `version ${version} confirmed by ${count(replicas, 'engine')}`,
      })),
    ...(line.resumed_at === null ? [] : [{ at: line.resumed_at, text: 'run resumed' }]),
    ...(line.ended_at === null ? [] : [{ at: line.ended_at, text: 'iteration ended' }]),
  ].toSorted((a, b) => a.at - b.at);
  const span = Math.max(1, last - start, ...marks.map(({ at }) => at - start));
  const place = (at: number): string => `${Math.min(100, Math.max(0, (100 * (at - start)) / span))}%`;
  return { rows, lanes, start, span, marks, place, isCut: isCut(line), now: line.now };
}
type Drawing = ReturnType<typeof drawingOf>;

function Drawn({ line, isFiltered: isPart }: { line: Timeline; isFiltered: boolean }) {
  const drawing = useMemo(() => drawingOf(line), [line]);
  return (
    <>
      <p>
        <Badge word={line.status} /> opened {when(line.opened_at)}
        {line.ended_at !== null && `, took ${exactDuration(line.ended_at - line.opened_at)}`}, samples from version{' '}
        {line.policy_version}
        {line.newest_take > line.take && `; take ${line.newest_take} superseded it`}
      </p>
      {line.waits_for !== null && (
        <p className="trouble">
          <Recorded text={line.waits_for} />
        </p>
      )}
      {line.skipped !== null && (
        <p className="trouble">
          Its step made no update: <Recorded text={line.skipped} />
        </p>
      )}
      <Summary drawing={drawing} isFiltered={isPart} />
      {drawing.rows.length === 0 ? (
        <p className="hint">{isPart ? 'It has no such trials.' : 'No group of it has been opened.'}</p>
      ) : (
        <Bars drawing={drawing} isFiltered={isPart} />
      )}
    </>
  );
}

/** What the time went into, the trials that ended last, and the times of the step. */
function Summary({ drawing: { rows, lanes, marks, start }, isFiltered: isPart }: BarsProps) {
  const trials = rows.flatMap((row) => (row.kind === 'trial' ? [row] : []));
  const total = lanes.reduce((sum, lane) => sum + lane.end - lane.start, 0);
  const share = (seconds: number): string => `${exactDuration(seconds)} (${Math.round((100 * seconds) / total)} %)`;
  const spent = Object.entries(NAMES).flatMap(([name, text]) => {
    const seconds = lanes.reduce((sum, lane) => sum + (lane.name === name ? lane.end - lane.start : 0), 0);
    return seconds > 0 ? [{ name, text, seconds }] : [];
  });
  const engine = lanes.reduce((sum, lane) => sum + lane.engineWait, 0);
  const latest = trials.toSorted((a, b) => (b.lanes.at(-1)?.end ?? 0) - (a.lanes.at(-1)?.end ?? 0)).slice(0, 3);
  const stragglers = trials.filter(({ trial, group }) => isStraggler(trial, group)).length;
  const again = trials.filter(({ trial }) => trial.attempts.length > 1).length;
  return (
    <>
      <p className="legend">
        {isPart && spent.length > 0 && <span>Of the trials shown:</span>}
        {spent.map(({ name, text, seconds }) => (
          <span key={name}>
            <span className={`lane-key lane-${name}`} /> {text} {share(seconds)}
          </span>
        ))}
        {engine > 0 && (
          <span>
            <span className="lane-key lane-engine" /> of it waits for the engine {share(engine)}
          </span>
        )}
      </p>
      {trials.length > 0 && (
        <p className="hint">
          {count(trials.length, 'trial')}
          {isPart && ' shown'}, {count(stragglers, 'straggler')}, {again} tried again. Ended last:{' '}
          {latest.map(({ trial, lanes: own }, i) => (
            <span key={trial.trial_id}>
              {i > 0 && ', '}
              <Link href={trialPath(trial.trial_id)}>{trial.trial_id}</Link> (
              {endOf(trial) === null ? 'under way' : `after ${exactDuration((own.at(-1)?.end ?? start) - start)}`})
            </span>
          ))}
        </p>
      )}
      {marks.length > 0 && (
        <p className="hint">
          Lines: {marks.map(({ at, text }) => `${text} after ${exactDuration(Math.max(0, at - start))}`).join('; ')}.
        </p>
      )}
    </>
  );
}

/** The height of a row, also in style.css. */
const [TRIAL_HEIGHT, GROUP_HEIGHT] = [26, 34];

type BarsProps = { drawing: Drawing; isFiltered: boolean };

function Bars({ drawing, isFiltered: isPart }: BarsProps) {
  const { rows, marks, span, place, start } = drawing;
  const [{ chosen, said }, setChoice] = useState<{ chosen: string | null; said: string }>({ chosen: null, said: '' });
  const choose = (row: TrialRow): void => setChoice({ chosen: row.trial.trial_id, said: lineOf(row, drawing) });
  const root = useRef<HTMLDivElement>(null);
  const top = useTop(root);
  const list = useWindowVirtualizer({
    count: rows.length,
    estimateSize: (i) => (rows[i]?.kind === 'group' ? GROUP_HEIGHT : TRIAL_HEIGHT),
    getItemKey: (i) => keyOf(rows[i], i),
    overscan: 12,
    scrollMargin: top,
  });
  const about = rows.find((row) => row.kind === 'trial' && row.trial.trial_id === chosen);
  return (
    <>
      <div className="timeline-head">
        <p className="hidden" role="status">
          {said}
        </p>
        <p className="hint">
          {about?.kind === 'trial'
            ? lineOf(about, drawing)
            : 'Choose a bar by a click or a trial with the Tab key: this line says what it did.'}
        </p>
        <div className="timeline-axis" aria-hidden="true">
          {[0, 0.25, 0.5, 0.75, 1].map((share) => (
            <span key={share} style={{ left: `${100 * share}%` }}>
              {exactDuration(share * span)}
            </span>
          ))}
        </div>
      </div>
      <div
        ref={root}
        className="list timeline"
        style={{ height: list.getTotalSize() }}
        role="region"
        aria-label="Trials by time"
      >
        <div className="timeline-marks" aria-hidden="true">
          {marks.map(({ at, text }) => (
            <span key={`${at} ${text}`} style={{ left: place(at) }} title={text} />
          ))}
        </div>
        {list.getVirtualItems().map(({ key, index, start: y }) => {
          const row = rows[index];
          const style = { transform: `translateY(${y - list.options.scrollMargin}px)` };
          if (row?.kind === 'group')
            return <GroupRow key={key} group={row.group} style={style} isCut={drawing.isCut} isFiltered={isPart} />;
          return (
            row && (
              <div
                key={key}
                className={`row timeline-trial${row.trial.trial_id === chosen ? ' picked' : ''}`}
                style={style}
                onClick={() => choose(row)}
                onFocus={() => choose(row)}
              >
                <span className="timeline-label">
                  <Link href={trialPath(row.trial.trial_id)}>
                    <span className="hidden">trial </span>
                    {row.trial.trial_index ?? row.trial.trial_id}
                  </Link>{' '}
                  <span className={markClass(row)}>{markOf(row, drawing)}</span>
                </span>
                <span
                  className="timeline-track"
                  role="img"
                  aria-label={textOf(row, drawing)}
                  title={textOf(row, drawing)}
                >
                  {row.lanes.map((lane) => (
                    <span
                      key={`${lane.attempt} ${lane.name}`}
                      className={`lane lane-${lane.name}`}
                      style={{ left: place(lane.start), width: place(start + lane.end - lane.start) }}
                    >
                      {lane.engineWait > 0 && (
                        <span
                          className="lane-engine"
                          style={{ width: `${(100 * lane.engineWait) / (lane.end - lane.start)}%` }}
                        />
                      )}
                    </span>
                  ))}
                </span>
              </div>
            )
          );
        })}
      </div>
    </>
  );
}

const keyOf = (row: Row | undefined, i: number): string =>
  row === undefined ? String(i) : row.kind === 'group' ? `group ${row.group.group_id}` : row.trial.trial_id;

type TrialRow = Extract<Row, { kind: 'trial' }>;

/** The part of a drawing that the words of a trial need. */
type Now = Pick<Drawing, 'isCut' | 'now'>;

/** A trial's outcome, or what it does without one. */
function wordOf({ trial, group }: TrialRow, { isCut: isEnded }: Now): string {
  if (!isEnded && isBetweenAttempts(trial, group)) return 'between attempts';
  // As of a trial that was deleted.
  if (trial.outcome === null && endOf(trial) !== null) return 'no outcome';
  return outcomeWord(trial.outcome, isEnded).replaceAll('_', ' ');
}

/** A word beside a trial that was not simply scored. */
function markOf(row: TrialRow, now: Now): string {
  const { trial, group } = row;
  const word = wordOf(row, now);
  if (word !== 'scored') return word;
  if (isStraggler(trial, group)) return 'straggler';
  return trial.attempts.length > 1 ? 'tried again' : '';
}

const lineOf = (row: TrialRow, now: Now): string => `${row.trial.trial_id}: ${textOf(row, now)}`;

const markClass = ({ trial, group }: TrialRow): string =>
  (trial.outcome !== null && trial.outcome !== 'scored') || isStraggler(trial, group) ? 'hint odd' : 'hint';

/** What a bar shows, in words. */
function textOf(row: TrialRow, now: Now): string {
  const { trial, group, lanes } = row;
  const several = trial.attempts.length > 1;
  const parts = lanes.map(({ name, attempt, start, end, engineWait }, i) => {
    const wait = engineWait > 0 ? ` (${exactDuration(engineWait)} of it waits for the engine)` : '';
    const which = several && lanes[i - 1]?.attempt !== attempt ? `attempt ${attempt}: ` : '';
    return `${which}${NAMES[name]} ${exactDuration(end - start)}${wait}`;
  });
  const facts = [
    wordOf(row, now),
    ...(trial.reward === null ? [] : [`reward ${trial.reward.toFixed(3)}`]),
    ...(isStraggler(trial, group) ? ['straggler'] : []),
    ...(trial.call_since === null || now.isCut
      ? []
      : [`a call has been under way for ${exactDuration(now.now - trial.call_since)}`]),
    count(trial.calls, 'call'),
  ];
  return [...(parts.length > 0 ? parts : ['the record has no times of it']), ...facts].join(', ');
}

type GroupRowProps = { group: TimelineGroup; style: CSSProperties; isCut: boolean; isFiltered: boolean };

function GroupRow({ group, style, isCut: isEnded, isFiltered: isPart }: GroupRowProps) {
  const others = group.size - group.trials.length;
  return (
    <div className="row timeline-group" style={style}>
      <h2>
        <Recorded text={taskName(group.task)} />
      </h2>{' '}
      {group.dropped !== null && <Badge word={group.dropped} title="This group is in no batch" />}{' '}
      <span className="hint">
        {group.ended_at === null
          ? isEnded
            ? 'not ended'
            : 'under way'
          : `ended after ${exactDuration(group.ended_at - group.opened_at)}`}
        {others > 0 && `, ${count(others, isPart ? 'other trial' : 'trial')}${isPart ? '' : ' not opened'}`}{' '}
        <span className="less">{group.group_id}</span>
      </span>
    </div>
  );
}
