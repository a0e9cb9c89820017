import { useEffect, useMemo, useRef, useState, type ReactNode } from 'react';
import { Link } from 'wouter';
import { TrialgateApiError, type RunDetails, type RunVerb, type Take } from '../../../clients/typescript/client.ts';
import { useSession } from '../use-answer.ts';
import { settingsText } from '../settings-text.ts';
import { lastTakeOf, verbsOf, versionsOf, type PlainVerb } from '../run-verbs.ts';
import { Choice } from './choice.tsx';
import { runPath } from './crumbs.tsx';
import { Recorded } from './recorded.tsx';

type Props = {
  runId: string;
  run: RunDetails;
  takes: Take[];
  /** Called when the run has followed. */
  onChange: () => void;
};

const LABELS: Readonly<Record<PlainVerb, string>> = {
  pause: 'Pause',
  resume: 'Resume',
  stop: 'Stop after this iteration',
  cancel: 'Cancel …',
  redo: 'Redo the last iteration …',
};

const HOURS = { 1: 'an hour', 8: '8 hours', 24: 'a day', 168: 'a week' } as const;

/** What a person can ask of a run: buttons where this gateway changes runs, commands elsewhere. */
export function Operate(props: Props) {
  const { runId, run, takes } = props;
  const verbs = verbsOf(run, takes);
  return (
    <section aria-label="What the run is to do" className="operate">
      {run.is_operable ? (
        <Buttons {...props} verbs={verbs} />
      ) : (
        <p className="hint">
          Your key only reads, or this gateway was started without the address of Temporal or without an admin key, so
          the page changes no runs. Type where the deployment runs:{' '}
          {verbs.map((verb) => (
            <code key={verb}>{`npx trialgate ${verb} ${runId}`}</code>
          ))}
        </p>
      )}
    </section>
  );
}

/** `doing`: the verb that the run has not answered yet. `forked`: the run that a fork made. */
type State = { doing: RunVerb['verb'] | null; said: string; isRefused: boolean; forked: string | null };
/** What a person is asked about before the run is. A redo names its take: the run may begin the next one before the person answers. */
type Grave = { verb: 'cancel' } | { verb: 'redo'; iteration: number; take: number };
const NOTHING: State = { doing: null, said: '', isRefused: false, forked: null };

/** A run is asked one thing at a time, but a cancel does not wait for the answer to something else. */
const isHeldBack = (verb: RunVerb['verb'], doing: RunVerb['verb'] | null): boolean =>
  doing !== null && (verb !== 'cancel' || doing === 'cancel');

function Buttons({ runId, run, takes, onChange, verbs }: Props & { verbs: PlainVerb[] }) {
  const { client, refuseKey } = useSession();
  const [{ doing, said, isRefused, forked }, setState] = useState(NOTHING);
  const [hours, setHours] = useState('24');
  const [retryFailed, setRetryFailed] = useState(false);
  const [confirmed, setConfirmed] = useState<Grave | null>(null);
  // A second click may come before the page is drawn again.
  const current = useRef<RunVerb | null>(null);
  const ask = async (asked: RunVerb): Promise<void> => {
    if (isHeldBack(asked.verb, current.current?.verb ?? null)) return;
    current.current = asked;
    const show = (state: State): void => {
      // After a cancel the answer to the verb before no longer matters.
      if (current.current !== asked) return;
      current.current = null;
      setState(state);
    };
    setState({ ...NOTHING, doing: asked.verb });
    try {
      const { message, run_id: id } = await client.operate(runId, asked);
      show({ ...NOTHING, said: message, forked: id === runId ? null : id });
      onChange();
    } catch (error) {
      if (error instanceof TrialgateApiError && error.status === 401) return refuseKey(error.message);
      show({ ...NOTHING, said: reasonOf(error), isRefused: true });
    }
  };
  const last = lastTakeOf(takes);
  const press = (verb: PlainVerb): void => {
    if (isHeldBack(verb, doing)) return;
    if (verb === 'cancel') setConfirmed({ verb });
    else if (verb === 'redo') setConfirmed(last && { verb, ...last });
    else if (verb === 'pause') void ask({ verb, seconds: Number(hours) * 3600 });
    else if (verb === 'resume' && retryFailed && canRetry) void ask({ verb, retry_failed: true });
    else void ask({ verb });
  };
  const canRetry = run.status !== 'running' && run.status !== 'completed';
  const button = (verb: PlainVerb): ReactNode => (
    <button key={verb} type="button" aria-disabled={isHeldBack(verb, doing)} onClick={() => press(verb)}>
      {LABELS[verb]}
    </button>
  );
  return (
    <>
      <div className="line tools">
        {verbs.map((verb) => (
          <span key={verb}>
            {button(verb)}
            {verb === 'pause' && <Choice label={<PauseFor />} names={HOURS} chosen={hours} onChoose={setHours} />}
            {verb === 'resume' && canRetry && (
              <label>
                {' '}
                <input
                  type="checkbox"
                  checked={retryFailed}
                  onChange={(event) => setRetryFailed(event.target.checked)}
                />{' '}
                its failed trials run again
              </label>
            )}
          </span>
        ))}
        <Fork
          runId={runId}
          versions={versionsOf(takes)}
          config={run.config}
          isBusy={doing !== null}
          onFork={(fork) => void ask(fork)}
        />
      </div>
      <div role="status">
        {doing !== null && (
          <p className="hint">
            Run {runId} is asked to {doing} …
          </p>
        )}
        {said !== '' && (
          <p className={isRefused ? 'trouble lines' : 'said'}>
            <Recorded text={said} />
            {forked !== null && (
              <>
                {' '}
                <Link href={runPath(forked)}>Open {forked}</Link>
              </>
            )}
          </p>
        )}
      </div>
      {confirmed !== null && (
        <Confirm
          question={
            confirmed.verb === 'cancel'
              ? `Cancel run ${runId}?`
              : `Run iteration ${confirmed.iteration}, take ${confirmed.take}, of ${runId} again?`
          }
          yes={confirmed.verb === 'cancel' ? 'Cancel the run' : 'Run it again'}
          onAnswer={(isYes) => {
            setConfirmed(null);
            if (isYes) void ask(confirmed);
          }}
        >
          {confirmed.verb === 'cancel'
            ? 'Its trials are cut now, and its engines are released. What is finished is kept, and Resume goes on from there.'
            : 'It becomes a new take with new groups. The old take stays in the record as superseded, and nothing of it counts any more. This cannot be undone.'}
        </Confirm>
      )}
    </>
  );
}

/** The button before it says "Pause" too, but not to those who hear the list alone. */
const PauseFor = () => (
  <>
    {' '}
    <span className="hidden">Pause</span> for
  </>
);

type ForkProps = {
  runId: string;
  versions: number[];
  /** The settings of the run. */
  config: unknown;
  isBusy: boolean;
  onFork: (fork: Extract<RunVerb, { verb: 'fork' }>) => void;
};

/** Starts a new run from a version of this one, with the same settings or others. The model is what it is forked from. */
function Fork({ runId, versions, config, isBusy, onFork }: ForkProps) {
  const [chosen, setVersion] = useState<string | null>(null);
  const [name, setName] = useState('');
  const [edited, setEdited] = useState<string | null>(null);
  const own = useMemo(() => textOf(config), [config]);
  const version = chosen ?? String(versions[0] ?? 0);
  const names = Object.fromEntries(
    versions.map((each) => [String(each), each === 0 ? '0, the base model' : `${each}`]),
  );
  return (
    <details className="fork">
      <summary>Fork …</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isBusy) return;
          onFork({
            verb: 'fork',
            version: Number(version),
            ...(name.trim() === '' ? {} : { run_id: name.trim() }),
            ...(edited === null || edited === own ? {} : { file: edited }),
          });
        }}
      >
        <div className="line">
          <Choice label="from policy version" names={names} chosen={version} onChoose={setVersion} />
          <label>
            as run{' '}
            <input value={name} placeholder="a name with the time" onChange={(event) => setName(event.target.value)} />
          </label>
          <button type="submit" aria-disabled={isBusy}>
            Start the fork
          </button>
        </div>
        <details>
          <summary>With other settings</summary>
          <textarea
            aria-label="Settings of the fork"
            className="file"
            spellCheck={false}
            rows={14}
            value={edited ?? own}
            onChange={(event) => setEdited(event.target.value)}
          />
        </details>
      </form>
      <p className="hint">
        What its settings leave out is as in this run. The command is{' '}
        <code>{`npx trialgate fork ${runId}@${version} optim.lr=1e-5`}</code>
      </p>
    </details>
  );
}

/** Returns the settings that a fork can change: all but the model. */
function textOf(config: unknown): string {
  if (typeof config !== 'object' || config === null) return '';
  return settingsText(Object.fromEntries(Object.entries(config).filter(([key]) => key !== 'model')));
}

type ConfirmProps = { question: string; yes: string; onAnswer: (isYes: boolean) => void; children: ReactNode };

/** Asks before something that cannot be undone. The browser keeps the focus in it, closes it at Escape, and gives the focus back. */
function Confirm({ question, yes, onAnswer, children }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (!dialog.current?.open) dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      className="card"
      aria-labelledby="confirm"
      onClose={() => onAnswer(dialog.current?.returnValue === 'yes')}
    >
      <h2 id="confirm">{question}</h2>
      <p>{children}</p>
      <div className="line">
        <button type="button" onClick={() => dialog.current?.close('no')}>
          Change nothing
        </button>
        <button type="button" className="grave" onClick={() => dialog.current?.close('yes')}>
          {yes}
        </button>
      </div>
    </dialog>
  );
}

function reasonOf(error: unknown): string {
  if (error instanceof TrialgateApiError) return error.message;
  return 'The gateway gave no answer, so it is not known whether the run was asked: look at its status before you ask again.';
}
