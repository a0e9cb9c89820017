import { useEffect, useMemo, useState } from 'react';
import { Link, Route, Router, Switch, useLocation } from 'wouter';
import { TrialgateClient } from '../../clients/typescript/client.ts';
import { forgetKey, keepKey, readKey, takeKeyFromAddress } from './key.ts';
import { ErrorBoundary } from './parts/error-boundary.tsx';
import { KeyForm } from './parts/key-form.tsx';
import { SessionContext } from './use-answer.ts';
import { DeploymentView } from './views/deployment.tsx';
import { DroppedView } from './views/dropped.tsx';
import { EvaluationView, GroupsView, IterationView } from './views/groups.tsx';
import { RunView } from './views/run.tsx';
import { RunsView } from './views/runs.tsx';
import { SearchView } from './views/search.tsx';
import { TimelineView } from './views/timeline.tsx';
import { TrialView } from './views/trial.tsx';

/** `refused` says why the gateway did not accept the key, or that it wants one. */
type Key = { key: string | null; refused: string | null };

function firstKey(): Key {
  takeKeyFromAddress();
  return { key: readKey(), refused: null };
}

export function App() {
  const [{ key, refused }, setKey] = useState(firstKey);
  useEffect(() => {
    // A person may paste another address of `trialgate open` into this tab.
    const changed = (): void => {
      if (takeKeyFromAddress()) setKey({ key: readKey(), refused: null });
    };
    window.addEventListener('hashchange', changed);
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  const session = useMemo(
    () => ({
      client: new TrialgateClient({
        baseUrl: location.origin,
        adminKey: key ?? undefined,
        fetch: (...request) => fetch(...request),
      }),
      refuseKey: (why: string) => {
        forgetKey();
        setKey({ key: null, refused: key === null ? '' : why });
      },
    }),
    [key],
  );
  const enter = (entered: string): void => {
    keepKey(entered);
    setKey({ key: entered, refused: null });
  };
  const forget = (): void => {
    forgetKey();
    setKey({ key: null, refused: '' });
  };
  return (
    <Router base="/ui">
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <header className="top">
        <Link href="/" className="brand">
          Trialgate
        </Link>
        <nav aria-label="Views of the deployment" className="views">
          <Link href="/">Runs</Link> <Link href="/deployment">Engines and workers</Link>
        </nav>
        {key !== null && (
          <button type="button" className="quiet" onClick={forget}>
            Forget the key
          </button>
        )}
      </header>
      <main id="content" tabIndex={-1}>
        {refused === null ? (
          <SessionContext value={session}>
            <Views />
          </SessionContext>
        ) : (
          <KeyForm refused={refused} onKey={enter} />
        )}
      </main>
    </Router>
  );
}

function Views() {
  const [place] = useLocation();
  return (
    <ErrorBoundary key={place}>
      <Switch>
        <Route path="/">
          <RunsView />
        </Route>
        <Route path="/deployment">
          <DeploymentView />
        </Route>
        <Route path="/runs/:run">{({ run }) => <RunView key={run} runId={run} />}</Route>
        <Route path="/runs/:run/iterations/:iteration">
          {({ run, iteration }) => <IterationView runId={run} iteration={Number(iteration)} />}
        </Route>
        <Route path="/runs/:run/iterations/:iteration/timeline">
          {({ run, iteration }) => <TimelineView runId={run} iteration={Number(iteration)} />}
        </Route>
        <Route path="/runs/:run/evaluations/:evaluation">
          {({ run, evaluation }) => <EvaluationView runId={run} evaluation={evaluation} />}
        </Route>
        <Route path="/runs/:run/groups">{({ run }) => <GroupsView runId={run} />}</Route>
        <Route path="/runs/:run/dropped">{({ run }) => <DroppedView runId={run} />}</Route>
        <Route path="/runs/:run/search">{({ run }) => <SearchView runId={run} />}</Route>
        <Route path="/trials/:trial">{({ trial }) => <TrialView key={trial} trialId={trial} />}</Route>
        <Route>
          <h1>There is no such view</h1>
          <p>
            This address leads nowhere. <Link href="/">All runs</Link>
          </p>
        </Route>
      </Switch>
    </ErrorBoundary>
  );
}
