import { useState } from 'react';
import { Link } from 'wouter';
import type { SearchHit, SearchResult, TrialgateClient } from '../../../clients/typescript/client.ts';
import { count, visible } from '../format.ts';
import { callPath, Crumbs, runPath } from '../parts/crumbs.tsx';
import { Recorded } from '../parts/recorded.tsx';
import { ShowAnswer } from '../parts/show-answer.tsx';
import { useAnswer } from '../use-answer.ts';
import { useSearchChange } from '../use-search-change.ts';
import { useTitle } from '../use-title.ts';

/** Searches the transcripts of a run. What is searched for is in the address. */
export function SearchView({ runId }: { runId: string }) {
  useTitle(`Search, ${runId}`);
  const [search, change] = useSearchChange();
  const q = search.get('q') ?? '';
  return (
    <>
      <Crumbs of={[[runId, runPath(runId)]]} />
      <h1>Search transcripts</h1>
      <form
        role="search"
        className="line tools"
        onSubmit={(event) => {
          event.preventDefault();
          const typed = new FormData(event.currentTarget).get('q');
          change((params) => params.set('q', typeof typed === 'string' ? typed : ''));
        }}
      >
        <label>
          Words, or “phrases” in quotation marks{' '}
          <input key={q} name="q" type="search" defaultValue={q} maxLength={200} size={30} />
        </label>
        <button type="submit">Search</button>
      </form>
      {q.trim() === '' ? (
        <p className="hint">
          A message that is found has all the words, in upper or lower case. Messages, what models reasoned, and tool
          calls are searched; tools’ descriptions and what programs printed are not.
        </p>
      ) : (
        <Hits key={q} runId={runId} q={q} />
      )}
    </>
  );
}

/** The most pages without a hit that one click searches. */
const MOST_PAGES = 10;
type Found = { hits: SearchHit[]; searched: number; next: string | null };

/** The hits after a call, and below them those after the last call that was searched once someone asks for them. */
function Hits({ runId, q, after, before = 0 }: { runId: string; q: string; after?: string; before?: number }) {
  const [isMore, setMore] = useState(false);
  const answer = useAnswer({
    key: `search ${runId} ${q} ${after}`,
    ask: (client, _before: Found | null, signal) => readHits(client, { runId, q, after }, signal),
    // A search reads much of the record, so a person asks for it again.
    isFinal: () => true,
    isCostly: true,
  });
  return (
    <ShowAnswer answer={answer} note={after === undefined || answer.trouble !== null ? undefined : null}>
      {({ hits, searched, next }) => (
        <>
          {hits.map((hit, i) => (
            <Hit key={`${hit.call_id} ${i}`} hit={hit} />
          ))}
          {next !== null && isMore ? (
            <Hits runId={runId} q={q} after={next} before={before + searched} />
          ) : (
            <p role="status">
              {count(before + searched, 'call')} searched{next === null && ', all that the run has'}.
              {next === null && before === 0 && hits.length === 0 && ' No message has these words.'}{' '}
              {next !== null && (
                <button type="button" onClick={() => setMore(true)}>
                  Search on
                </button>
              )}
            </p>
          )}
        </>
      )}
    </ShowAnswer>
  );
}

/** Reads until a page has hits. When a later page fails, the search goes on after those before it once someone asks for more. */
async function readHits(
  client: TrialgateClient,
  { runId, q, after }: { runId: string; q: string; after?: string },
  signal: AbortSignal,
): Promise<Found> {
  const found: Found = { hits: [], searched: 0, next: after ?? null };
  for (let pages = 0; pages < MOST_PAGES; pages++) {
    let page: SearchResult;
    try {
      page = await client.search(runId, { q, after: found.next ?? undefined }, signal);
    } catch (error) {
      if (pages === 0) throw error;
      break;
    }
    found.hits.push(...page.hits);
    found.searched += page.searched;
    found.next = page.next_after;
    if (found.hits.length > 0 || found.next === null) break;
  }
  return found;
}

function Hit({ hit }: { hit: SearchHit }) {
  return (
    <article className="card hit">
      <h2>
        <Link href={callPath(hit.trial_id, hit.attempt, hit.number)}>
          <Recorded text={hit.trial_id} />, {hit.attempt > 1 && `attempt ${hit.attempt}, `}call {hit.number}
        </Link>{' '}
        <span className="hint">
          <Recorded text={hit.role} />
        </span>
      </h2>
      <pre className="text" dir="auto">
        {hit.excerpt.map(({ text, is_match: isMatch }, i) =>
          isMatch ? <mark key={i}>{visible(text)}</mark> : <span key={i}>{visible(text)}</span>,
        )}
      </pre>
    </article>
  );
}
