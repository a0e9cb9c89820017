import { useState } from 'react';
import { curlOf } from '../curl.ts';
import { indentJson } from '../indent-json.ts';
import { useSession } from '../use-answer.ts';

type Props = { trialId: string; attempt: number; callId: string; number: number };
/** `text`: what the browser did not let the page copy. */
type State = { said: string; text: string | null };

/** Copies a call as a command, as JSON, or as a link to it. */
export function CopyCall({ trialId, attempt, callId, number }: Props) {
  const { client } = useSession();
  const [{ said, text }, setState] = useState<State>({ said: '', text: null });
  const copy = async (make: () => Promise<string> | string): Promise<void> => {
    try {
      const made = await make();
      // A page that is not from this machine and not by HTTPS has no clipboard.
      const isCopied = await navigator.clipboard?.writeText(made).then(
        () => true,
        () => false,
      );
      setState(
        isCopied ? { said: 'copied', text: null } : { said: 'the browser lets this page copy nothing:', text: made },
      );
    } catch (error) {
      setState({ said: error instanceof Error ? error.message : String(error), text: null });
    }
  };
  const request = () => client.callRequest(trialId, callId);
  const ways: [name: string, make: () => Promise<string> | string][] = [
    ['curl', async () => curlOf(await request())],
    ['JSON', async () => indentJson((await request()).body)],
    ['link', () => `${location.origin}/ui/trials/${encodeURIComponent(trialId)}?attempt=${attempt}&call=${number}`],
  ];
  return (
    <div className="copy hint">
      Copy as{' '}
      {ways.map(([name, make]) => (
        <button key={name} type="button" className="quiet" onClick={() => void copy(make)}>
          <span className="hidden">Copy call {number} as </span>
          {name}
        </button>
      ))}{' '}
      <span role="status">{said}</span>
      {text !== null && (
        <textarea
          readOnly
          value={text}
          aria-label={`Call ${number} to copy`}
          onFocus={(event) => event.target.select()}
        />
      )}
    </div>
  );
}
