import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent } from 'react';
import type { Sample, Samples, ShownCall } from '../../../clients/typescript/client.ts';
import { count, short } from '../format.ts';
import { Choice } from './choice.tsx';
import { ShowAnswer } from './show-answer.tsx';
import { useAnswer } from '../use-answer.ts';
import { useSearchChange } from '../use-search-change.ts';
import { useTop } from '../use-top.ts';

const COLORS = { logprob: 'log-probability', mask: 'mask', version: 'policy version' } as const;
type Coloring = keyof typeof COLORS;
const isColoring = (name: string | null): name is Coloring => name !== null && Object.hasOwn(COLORS, name);

const ROW_HEIGHT = 26;
const TOKEN_WIDTH = 58;

type Props = { trialId: string; attempt: number; calls: readonly ShownCall[]; isOver: boolean };

/** The token sequences that the trainer gets of a trial. */
export function TokensTab({ trialId, attempt, calls, isOver }: Props) {
  const answer = useAnswer({
    key: `tokens ${trialId} ${attempt}`,
    ask: (client, _before: Samples | null, signal) => client.tokens(trialId, { attempt }, signal),
    // Every sequence is sent whole, so while a trial runs a person asks for them again.
    isFinal: () => true,
  });
  return (
    <ShowAnswer answer={answer} note={isOver ? null : 'The tokens are read once, also while the trial runs.'}>
      {({ samples }) =>
        samples.length === 0 ? (
          <p className="hint">No call of this attempt can be trained: the transcript says why, call by call.</p>
        ) : (
          <SampleTokens samples={samples} calls={calls} />
        )
      }
    </ShowAnswer>
  );
}

function SampleTokens({ samples, calls }: { samples: Sample[]; calls: readonly ShownCall[] }) {
  const [search, change] = useSearchChange();
  const asked = search.get('color');
  const coloring: Coloring = isColoring(asked) ? asked : 'logprob';
  const place = Math.min(Math.max(0, Number(search.get('sample')) || 0), samples.length - 1);
  const sample = samples[place];
  if (!sample) return null;
  const trained = sample.loss_mask.reduce((sum, each) => sum + each, 0);
  const numbers = sample.call_ids.flatMap((id) => calls.find((call) => call.call_id === id)?.number ?? []);
  return (
    <>
      <div className="line tools">
        {samples.length > 1 && (
          <label>
            Sample{' '}
            <select value={place} onChange={(event) => change((params) => params.set('sample', event.target.value))}>
              {samples.map((_, i) => (
                <option key={i} value={i}>
                  {i + 1} of {samples.length}
                </option>
              ))}
            </select>
          </label>
        )}
        <Choice
          label="Color by"
          names={COLORS}
          chosen={coloring}
          onChoose={(name) => change((params) => params.set('color', name))}
        />
        <Legend coloring={coloring} sample={sample} />
      </div>
      <p className="hint">
        {count(sample.token_ids.length, 'token')}, {trained.toLocaleString('en')} of them trained, of call
        {numbers.length === 1 ? '' : 's'} {numbers.join(', ')}. Tokens are shown by their ids: the record has no text
        for each.
      </p>
      <Grid sample={sample} coloring={coloring} />
    </>
  );
}

/** Log-probabilities from which on a token has a stronger color. */
const STEPS = [-0.05, -0.5, -1, -2, -4];

function classOf(sample: Sample, i: number, coloring: Coloring, versions: readonly number[]): string {
  if (sample.loss_mask[i] !== 1) return 'context';
  if (coloring === 'mask') return 'trained';
  if (coloring === 'version') return `version-${versions.indexOf(sample.policy_versions[i] ?? -1) % 4}`;
  const logprob = sample.logprobs[i] ?? 0;
  return `surprise-${STEPS.filter((step) => logprob < step).length}`;
}

const versionsOf = (sample: Sample): number[] =>
  [...new Set(sample.policy_versions.filter((version) => version !== null))].toSorted((a, b) => a - b);

function Legend({ coloring, sample }: { coloring: Coloring; sample: Sample }) {
  const entries: [className: string, label: string][] = [['context', 'not trained']];
  if (coloring === 'mask') entries.push(['trained', 'trained']);
  if (coloring === 'version')
    entries.push(
      ...versionsOf(sample).map((version, i): [string, string] => [`version-${i % 4}`, `version ${version}`]),
    );
  if (coloring === 'logprob')
    entries.push(
      ['surprise-0', '≥ −0.05'],
      ...STEPS.map((step, i): [string, string] => [`surprise-${i + 1}`, `< −${-step}`]),
    );
  return (
    <span className="legend">
      {entries.map(([className, label]) => (
        <span key={label} className={`token ${className}`}>
          {label}
        </span>
      ))}
    </span>
  );
}

function Grid({ sample, coloring }: { sample: Sample; coloring: Coloring }) {
  const place = useRef<HTMLDivElement>(null);
  const [columns, setColumns] = useState(10);
  const [chosen, setChosen] = useState<number | null>(null);
  const top = useTop(place);
  const versions = useMemo(() => versionsOf(sample), [sample]);
  useLayoutEffect(() => {
    const root = place.current;
    if (!root) return undefined;
    const measure = (): void => setColumns(Math.max(1, Math.floor(root.clientWidth / TOKEN_WIDTH)));
    const resized = new ResizeObserver(measure);
    resized.observe(root);
    measure();
    return () => resized.disconnect();
  }, []);
  const rows = Math.ceil(sample.token_ids.length / columns);
  const list = useWindowVirtualizer({ count: rows, estimateSize: () => ROW_HEIGHT, overscan: 8, scrollMargin: top });
  const last = sample.token_ids.length - 1;
  const move = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const step = Object.hasOwn(steps, event.key) ? steps[event.key] : undefined;
    if (step === undefined) return;
    event.preventDefault();
    const next = chosen === null ? 0 : Math.min(Math.max(0, chosen + step), last);
    setChosen(next);
    list.scrollToIndex(Math.floor(next / columns));
  };
  const choose = (event: MouseEvent): void => {
    const token = event.target instanceof HTMLElement ? event.target.dataset['place'] : undefined;
    if (token !== undefined) setChosen(Number(token));
  };
  return (
    <>
      <p className="hint about-token" role="status">
        {chosen === null || chosen > last
          ? 'Choose a token by a click or with the arrow keys: this line says what it is.'
          : titleOf(sample, chosen)}
      </p>
      <div
        ref={place}
        className="list tokens"
        style={{ height: list.getTotalSize() }}
        role="group"
        aria-label="Tokens"
        tabIndex={0}
        onKeyDown={move}
        onClick={choose}
      >
        {list.getVirtualItems().map((row) => (
          <div
            key={row.key}
            className="row"
            style={{ transform: `translateY(${row.start - list.options.scrollMargin}px)` }}
          >
            {sample.token_ids.slice(row.index * columns, (row.index + 1) * columns).map((id, column) => {
              const i = row.index * columns + column;
              return (
                <span
                  key={i}
                  data-place={i}
                  className={`token ${classOf(sample, i, coloring, versions)}${i === chosen ? ' chosen' : ''}`}
                  title={titleOf(sample, i)}
                >
                  {id}
                </span>
              );
            })}
          </div>
        ))}
      </div>
    </>
  );
}

function titleOf(sample: Sample, i: number): string {
  const head = `token ${i}, id ${sample.token_ids[i]}`;
  if (sample.loss_mask[i] !== 1) return `${head}: not trained here`;
  const logprob = sample.logprobs[i] ?? 0;
  return `${head}: log-probability ${short(logprob)} (${(100 * Math.exp(logprob)).toFixed(1)} %), policy version ${sample.policy_versions[i] ?? '–'}`;
}
