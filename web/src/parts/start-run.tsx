import { useRef, useState } from 'react';
import { Link } from 'wouter';
import { TrialgateApiError, type RunStart } from '../../../clients/typescript/client.ts';
import { settingsText } from '../settings-text.ts';
import { useSession } from '../use-answer.ts';
import { Choice } from './choice.tsx';
import { runPath } from './crumbs.tsx';
import { Recorded } from './recorded.tsx';

/** The gateway takes no longer file. */
const MOST_BYTES = 65_536;

/** `lines`: what the gateway has done of the start so far. */
type State = { isBusy: boolean; lines: string[]; said: string; isRefused: boolean; started: string | null };
const NOTHING: State = { isBusy: false, lines: [], said: '', isRefused: false, started: null };

type Props = {
  /** The runs whose settings can be filled in. */
  runs: string[];
  /** Called when a run was started. */
  onStart: () => void;
};

/** Starts a run from a run file: written here, chosen, or that of an earlier run. The gateway checks it as the command does. */
export function StartRun({ runs, onStart }: Props) {
  const { client, refuseKey } = useSession();
  const [text, setText] = useState('');
  const [fileName, setFileName] = useState<string | null>(null);
  const [as, setAs] = useState('');
  const [name, setName] = useState('');
  const [state, setState] = useState(NOTHING);
  // A second click may come before the page is drawn again, and the answer to a choice after the next one.
  const isAsked = useRef(false);
  const choice = useRef(0);

  const refuse = (error: unknown): void => {
    if (error instanceof TrialgateApiError && error.status === 401) return refuseKey(error.message);
    setState((before) => ({ ...before, isBusy: false, said: reasonOf(error), isRefused: true }));
  };
  /** Takes what a choice fills in, unless a later choice was made meanwhile. */
  const fill = async (get: () => Promise<string>, from: { as: string; fileName: string | null }): Promise<void> => {
    const mine = ++choice.current;
    setState(NOTHING);
    setAs(from.as);
    setFileName(from.fileName);
    try {
      const got = await get();
      if (mine === choice.current) setText(got);
    } catch (error) {
      if (mine === choice.current) refuse(error);
    }
  };
  const chooseRun = (runId: string): void => {
    if (runId === '') {
      choice.current++;
      return setAs('');
    }
    void fill(async () => settingsOf((await client.run(runId)).config), { as: runId, fileName: null });
  };
  const chooseFile = (file: File): void =>
    void fill(
      async () => {
        if (file.size <= MOST_BYTES) return file.text();
        throw new Error(`${file.name} has more than ${MOST_BYTES} bytes, which no run file needs: choose another`);
      },
      { as: '', fileName: file.name },
    );
  const start = async (): Promise<void> => {
    if (isAsked.current) return;
    isAsked.current = true;
    choice.current++;
    setState({ ...NOTHING, isBusy: true });
    const onProgress = (line: string): void => setState((before) => ({ ...before, lines: [...before.lines, line] }));
    const asked: RunStart = {
      file: text,
      ...(fileName === null ? {} : { file_name: fileName }),
      ...(as === '' ? {} : { as }),
      ...(name.trim() === '' ? {} : { run_id: name.trim() }),
    };
    try {
      const { run_id: started, message } = await client.startRun(asked, { onProgress });
      setState((before) => ({ ...before, isBusy: false, said: message, started }));
      onStart();
    } catch (error) {
      refuse(error);
    } finally {
      isAsked.current = false;
    }
  };

  return (
    <details className="start">
      <summary>Start a run …</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <div className="line tools">
          <Choice
            label="As run"
            names={{ '': 'no earlier one', ...Object.fromEntries(runs.map((id) => [id, id])) }}
            chosen={as}
            onChoose={chooseRun}
            isDisabled={state.isBusy}
          />
          <label>
            or from the file{' '}
            <input
              type="file"
              disabled={state.isBusy}
              accept=".yaml,.yml,.json"
              onChange={({ target }) => {
                const [file] = target.files ?? [];
                if (file) chooseFile(file);
                // The same file can be chosen again after it was changed.
                target.value = '';
              }}
            />
          </label>
        </div>
        <label htmlFor="run-file">Run file, in YAML or JSON{fileName !== null && ` (${fileName})`}</label>
        <textarea
          id="run-file"
          className="file"
          spellCheck={false}
          rows={14}
          value={text}
          placeholder={'model: SmolLM2-135M-Instruct\ntasks: [tasks/train]\niterations: 3'}
          onChange={(event) => {
            choice.current++;
            setText(event.target.value);
          }}
        />
        <div className="line tools">
          <label>
            Name of the run{' '}
            <input value={name} placeholder="a name with the time" onChange={(event) => setName(event.target.value)} />
          </label>
          <button type="submit" aria-disabled={state.isBusy}>
            Check and start
          </button>
        </div>
      </form>
      <p className="hint">
        Relative paths are those of a file in the project’s folder, where the deployment runs. A file may change numbers
        and choices, and name what is bundled or what the earlier run has; anything else needs{' '}
        <code>npx trialgate train FILE</code> once.
      </p>
      <div role="status">
        {(state.isBusy || state.lines.length > 0) && (
          <ul className="progress">
            {state.lines.map((line, index) => (
              // Lines are only added.
              // oxlint-disable-next-line react/no-array-index-key
              <li key={index}>
                <Recorded text={line} />
              </li>
            ))}
            {state.isBusy && <li className="hint">The gateway checks the file, as the command does …</li>}
          </ul>
        )}
        {state.said !== '' && (
          <p className={state.isRefused ? 'trouble lines' : 'said'}>
            <Recorded text={state.said} />
            {state.started !== null && (
              <>
                {' '}
                <Link href={runPath(state.started)}>Open {state.started}</Link>
              </>
            )}
          </p>
        )}
      </div>
    </details>
  );
}

const settingsOf = (config: unknown): string =>
  typeof config === 'object' && config !== null ? settingsText(config) : '';

/** A request that got no answer, or not all of it, is a TypeError. */
const reasonOf = (error: unknown): string =>
  error instanceof Error && !(error instanceof TypeError)
    ? error.message
    : 'The gateway gave no answer. If it was asked to start the run, it may have: look for it in the list before you start it again.';
