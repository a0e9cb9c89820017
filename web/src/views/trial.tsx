import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useMemo, useRef, type ReactNode } from 'react';
import { useSearchParams } from 'wouter';
import type { ShownCall, Transcript, TrialgateClient } from '../../../clients/typescript/client.ts';
import { count, duration, reward, taskName } from '../format.ts';
import { Badge, outcomeWord } from '../parts/badge.tsx';
import { Crumbs, groupPath, runPath } from '../parts/crumbs.tsx';
import { CopyCall } from '../parts/copy-call.tsx';
import { Message, Text, toolName } from '../parts/message.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { TokensTab } from '../parts/tokens.tsx';
import { hasEnded } from '../has-ended.ts';
import { toolsOfCalls } from '../tools-of-calls.ts';
import { useAnswer } from '../use-answer.ts';
import { useTitle } from '../use-title.ts';
import { useTop } from '../use-top.ts';

const TABS = { transcript: 'Transcript', tokens: 'Tokens', output: 'Output' } as const;
type Tab = keyof typeof TABS;
const isTab = (name: string | null): name is Tab => name !== null && Object.hasOwn(TABS, name);

export function TrialView({ trialId }: { trialId: string }) {
  const [search] = useSearchParams();
  const asked = search.get('tab');
  const tab: Tab = isTab(asked) ? asked : 'transcript';
  const attempt = Number(search.get('attempt')) || undefined;
  useTitle(trialId);
  const answer = useAnswer({
    key: `trial ${trialId} ${attempt}`,
    ask: (client, before: WholeTranscript | null, signal) =>
      readTranscript(client, { trialId, attempt }, before, signal),
    isFinal: isOver,
    runOf: ({ run_id: runId }) => runId,
  });
  const linkTo = (changed: Record<string, string>): string => {
    const params = new URLSearchParams(search);
    for (const [name, value] of Object.entries(changed)) params.set(name, value);
    return `?${params}`;
  };
  return (
    <>
      {answer.value ? <Place trial={answer.value} /> : <Crumbs of={[]} />}
      <h1>
        Trial <Recorded text={trialId} />
      </h1>
      <ShowAnswer answer={answer}>
        {(trial) => (
          <>
            <Facts trial={trial} />
            {trial.attempts.length > 1 && (
              <nav className="tabs" aria-label="Attempts">
                {trial.attempts.map((each) => (
                  <TabLink
                    key={each.attempt}
                    href={linkTo({ attempt: String(each.attempt) })}
                    isHere={each.attempt === trial.attempt}
                  >
                    Attempt {each.attempt} <Badge word={outcomeWord(each.outcome, isOver(trial))} />
                  </TabLink>
                ))}
              </nav>
            )}
            <nav className="tabs" aria-label="Views of the trial">
              {Object.entries(TABS).map(([name, label]) => (
                <TabLink key={name} href={linkTo({ tab: name })} isHere={name === tab}>
                  {label}
                </TabLink>
              ))}
            </nav>
            {tab === 'transcript' && <TranscriptTab trial={trial} />}
            {tab === 'tokens' && (
              <TokensTab
                key={trial.attempt}
                trialId={trialId}
                attempt={trial.attempt}
                calls={trial.calls}
                isOver={isOver(trial)}
              />
            )}
            {tab === 'output' && <OutputTab trial={trial} />}
          </>
        )}
      </ShowAnswer>
    </>
  );
}

/** All calls of an attempt. `aboutAt` is the time at which its attempts, outputs and refusals were read. */
type WholeTranscript = Omit<Transcript, 'attempts' | 'outputs' | 'refusals' | 'next'> & About & { aboutAt: number };
type About = {
  attempts: NonNullable<Transcript['attempts']>;
  outputs: NonNullable<Transcript['outputs']>;
  refusals: NonNullable<Transcript['refusals']>;
};

/** Nothing is added to a trial that has ended, nor to one of a run that has. */
const isOver = ({ outcome, run_status: status }: WholeTranscript): boolean => outcome !== null || hasEnded(status);

const aboutIn = ({ attempts, outputs, refusals }: Transcript): About => ({
  attempts: attempts ?? [],
  outputs: outputs ?? [],
  refusals: refusals ?? { count: 0, latest: [] },
});

/** The parts that only the first page has are read again when the trial ends or gets a new attempt, and after this time. */
const ABOUT_EVERY_MS = 30_000;

/** Asks for all calls once, and then only for new ones. */
async function readTranscript(
  client: TrialgateClient,
  { trialId, attempt }: { trialId: string; attempt: number | undefined },
  before: WholeTranscript | null,
  signal: AbortSignal,
): Promise<WholeTranscript> {
  const calls = [...(before?.calls ?? [])];
  let about: (About & { aboutAt: number }) | null = before;
  for (;;) {
    const page = await client.transcript(trialId, { attempt, after: calls.length, limit: 500 }, signal);
    // A new attempt has calls of its own.
    if (before && page.attempt !== before.attempt) return readTranscript(client, { trialId, attempt }, null, signal);
    if (page.attempts) about = { ...aboutIn(page), aboutAt: performance.now() };
    calls.push(...page.calls);
    if (page.next !== null) continue;
    const isOld =
      !about ||
      performance.now() - about.aboutAt > ABOUT_EVERY_MS ||
      page.outcome !== before?.outcome ||
      page.current_attempt !== before.current_attempt;
    if (about && (!isOld || page.attempts || !before)) {
      const { attempts, outputs, refusals, aboutAt } = about;
      return { ...page, calls, attempts, outputs, refusals, aboutAt };
    }
    const first = await client.transcript(trialId, { attempt: page.attempt, limit: 1 }, signal);
    return { ...page, calls, ...aboutIn(first), aboutAt: performance.now() };
  }
}

function TabLink({ href, isHere, children }: { href: string; isHere: boolean; children: ReactNode }) {
  const [, setSearch] = useSearchParams();
  return (
    <a
      href={href}
      aria-current={isHere ? 'page' : undefined}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey) return;
        event.preventDefault();
        setSearch(new URLSearchParams(href.slice(1)));
      }}
    >
      {children}
    </a>
  );
}

function Place({ trial: { run_id: runId, group_id: groupId } }: { trial: WholeTranscript }) {
  const [, iteration] = /\/(\d+)\.\d+\/\d+$/.exec(groupId ?? '') ?? [];
  const ordinal = groupId?.split('/').at(-1) ?? '';
  if (runId === null) return <Crumbs of={[]} />;
  return (
    <Crumbs
      of={[
        [runId, runPath(runId)],
        ...(iteration === undefined
          ? []
          : ([[`iteration ${iteration}`, `${runPath(runId)}/iterations/${iteration}`]] as [string, string][])),
        ...(groupId === null ? [] : ([[`group ${ordinal}`, groupPath(runId, groupId)]] as [string, string][])),
      ]}
    />
  );
}

const PHASES = {
  sandbox: 'sandbox',
  agent: 'agent',
  engine_wait: 'waiting for the engine (within agent)',
  verify: 'verify',
};

function Facts({ trial }: { trial: WholeTranscript }) {
  const tried = trial.attempts.find(({ attempt }) => attempt === trial.attempt);
  const named = Object.entries(trial.rewards ?? {});
  return (
    <dl className="facts">
      <Fact name="Outcome">
        <Badge word={outcomeWord(trial.outcome, isOver(trial))} />
      </Fact>
      <Fact name="Reward">
        {reward(trial.reward)}
        {named.length > 1 && (
          <span className="hint">
            {' '}
            {<Recorded text={named.map(([name, value]) => `${name} ${reward(value)}`).join(', ')} />}
          </span>
        )}
      </Fact>
      <Fact name="Task">
        <Recorded text={taskName(trial.task)} />
      </Fact>
      <Fact name="Agent">
        <Recorded text={trial.agent ?? '–'} />
      </Fact>
      <Fact name="Calls">{trial.calls.length}</Fact>
      {tried && Object.keys(tried.seconds).length > 0 && (
        <Fact name="Time">
          {Object.entries(PHASES)
            .filter(([phase]) => Object.hasOwn(tried.seconds, phase))
            .map(([phase, text]) => `${text} ${duration(tried.seconds[phase])}`)
            .join(', ')}
        </Fact>
      )}
      {trial.reason !== null && (
        <Fact name="Reason">
          <Recorded text={trial.reason} />
        </Fact>
      )}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

type Item =
  | { kind: 'begin'; call: ShownCall }
  | { kind: 'tools'; tools: readonly unknown[]; notShown: string | null }
  | { kind: 'message'; message: unknown }
  | { kind: 'reply'; call: ShownCall };

function itemsOf(calls: readonly ShownCall[]): Item[] {
  const lists = toolsOfCalls(calls);
  let before: readonly unknown[] = [];
  /** Returns the request's tools where they differ from those before; null elsewhere, and where the request is not kept. */
  const changedBy = (call: ShownCall, i: number): readonly unknown[] | null => {
    const tools = lists[i] ?? [];
    const isRefused = call.status === 'failed' && call.http_status < 500;
    if (isRefused || tools === before || JSON.stringify(tools) === JSON.stringify(before)) return null;
    before = tools;
    return tools;
  };
  /** The engine of a call that failed may not have been known, so the next call with the same tools tells it too. */
  const notShownFrom = (first: number): string | null => {
    const same = (i: number) => JSON.stringify(lists[i] ?? []) === JSON.stringify(lists[first] ?? []);
    for (let i = first; i < calls.length && same(i); i++) {
      const notShown = calls[i]?.tools_not_shown;
      if (notShown) return notShown;
    }
    return null;
  };
  return calls.flatMap((call, i): Item[] => {
    const tools = changedBy(call, i);
    return [
      ...(isTurn(call) ? [] : [{ kind: 'begin' as const, call }]),
      ...(tools ? [{ kind: 'tools' as const, tools, notShown: notShownFrom(i) }] : []),
      ...call.messages.map((message) => ({ kind: 'message' as const, message })),
      { kind: 'reply', call },
    ];
  });
}

/** True when a call goes on from the one right before it, or is the first, as most are. */
const isTurn = ({ number, continues, shares }: ShownCall): boolean =>
  number === 1 || (shares === null && continues === number - 1);

/** Says where a call stands that does not go on from the one right before it. */
function beginOf({ number, continues, shares }: ShownCall): string {
  if (continues !== null) return `Call ${number} goes on from call ${continues}`;
  if (!shares) return `Call ${number} begins a conversation`;
  const { messages, characters } = shares;
  const start =
    characters > 0
      ? `${characters.toLocaleString('en')} characters`
      : messages === 1
        ? 'message'
        : `${messages} messages`;
  return `Call ${number} begins again: it has the first ${start} of call ${shares.number}, and no longer the rest`;
}

function TranscriptTab({ trial }: { trial: WholeTranscript }) {
  const items = useMemo(() => itemsOf(trial.calls), [trial.calls]);
  const place = useRef<HTMLDivElement>(null);
  const top = useTop(place);
  const list = useWindowVirtualizer({
    count: items.length,
    estimateSize: () => 140,
    overscan: 6,
    scrollMargin: top,
    gap: 10,
  });
  const [search] = useSearchParams();
  const asked = Number(search.get('call'));
  const first = items.findIndex((item) => item.kind === 'reply' && item.call.number === asked);
  // The place is known once the list has been drawn. Later calls do not move the reader.
  useEffect(() => {
    if (first >= 0 && top > 0) list.scrollToIndex(first, { align: 'center' });
    // oxlint-disable-next-line react-hooks/exhaustive-deps
  }, [first, top > 0]);
  if (items.length === 0) return <p className="hint">This attempt has made no call.</p>;
  return (
    <>
      <div ref={place} className="list" style={{ height: list.getTotalSize() }} role="region" aria-label="Transcript">
        {list.getVirtualItems().map((row) => {
          const item = items[row.index];
          return (
            item && (
              <div
                key={row.key}
                data-index={row.index}
                ref={list.measureElement}
                className="row"
                style={{ transform: `translateY(${row.start - list.options.scrollMargin}px)` }}
              >
                <Shown item={item} trialId={trial.session_id} attempt={trial.attempt} />
              </div>
            )
          );
        })}
      </div>
      {trial.refusals.count > 0 && (
        <section>
          <h2>{count(trial.refusals.count, 'refused request')}</h2>
          {trial.refusals.latest.map(({ at, status, code, message }) => (
            <p key={`${at} ${code} ${message}`}>
              {status} {code}: <Recorded text={message} />
            </p>
          ))}
        </section>
      )}
    </>
  );
}

/** The tools of a request as sent. */
function Tools({ tools, notShown }: { tools: readonly unknown[]; notShown: string | null }) {
  if (tools.length === 0) return <p className="hint">From here on the requests have no tools.</p>;
  return (
    <>
      <details>
        <summary>
          {count(tools.length, 'tool')}: <Recorded text={tools.map(toolName).join(', ')} />
        </summary>
        <Text text={JSON.stringify(tools, null, 2)} />
      </details>
      {notShown !== null && (
        <p className="trouble">
          Not shown to the model: <Recorded text={notShown} />
        </p>
      )}
    </>
  );
}

function Shown({ item, trialId, attempt }: { item: Item; trialId: string; attempt: number }) {
  if (item.kind === 'begin') return <p className="begin">{beginOf(item.call)}</p>;
  if (item.kind === 'tools') return <Tools tools={item.tools} notShown={item.notShown} />;
  if (item.kind === 'message') return <Message message={item.message} />;
  const { call } = item;
  const facts = [
    `version ${call.policy_version ?? '–'}`,
    count(call.completion_tokens ?? 0, 'token'),
    duration(call.ended_at - call.started_at),
    call.finish_reason === null ? call.status : `ended by ${call.finish_reason}`,
    ...(call.continuation === 'drifted' ? ['drifted'] : []),
  ].join(' · ');
  return (
    <>
      <Message message={call.reply ?? { role: 'assistant' }} number={call.number} facts={facts} />
      <CopyCall trialId={trialId} attempt={attempt} callId={call.call_id} number={call.number} />
      {call.untrainable !== null && (
        <p className="trouble">
          Not trained: <Recorded text={call.why_untrainable ?? call.untrainable} />
        </p>
      )}
      {call.reason !== null && (
        <p className="trouble">
          {call.status}: <Recorded text={call.reason} />
        </p>
      )}
    </>
  );
}

function OutputTab({ trial: { outputs } }: { trial: WholeTranscript }) {
  const printed = outputs.filter(({ stdout, stderr }) => stdout !== '' || stderr !== '');
  if (printed.length === 0) return <p className="hint">No program of this attempt printed anything.</p>;
  return printed.map(({ program, stdout, stderr }) => (
    <section key={program}>
      <h2>{program}</h2>
      {stdout !== '' && <Text text={stdout} />}
      {stderr !== '' && (
        <>
          <h3>Standard error</h3>
          <Text text={stderr} />
        </>
      )}
    </section>
  ));
}
