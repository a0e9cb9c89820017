import { Link } from 'wouter';
import { Fragment } from 'react';

export const runPath = (runId: string): string => `/runs/${encodeURIComponent(runId)}`;
export const trialPath = (trialId: string): string => `/trials/${encodeURIComponent(trialId)}`;
/** The transcript of an attempt at one call. */
export const callPath = (trialId: string, attempt: number, call: number): string =>
  `${trialPath(trialId)}?attempt=${attempt}&call=${call}`;
/** The view of an iteration, or of one take of it. */
export const iterationPath = (runId: string, iteration: number, take?: number): string =>
  `${runPath(runId)}/iterations/${iteration}${take === undefined ? '' : `?take=${take}`}`;
export const timelinePath = (runId: string, iteration: number, take?: number): string =>
  `${runPath(runId)}/iterations/${iteration}/timeline${take === undefined ? '' : `?take=${take}`}`;
/** Returns a path with the parameters of the view that leads there: its take and its filter. */
export const withSearch = (path: string, search: URLSearchParams): string =>
  search.size === 0 ? path : `${path}?${search}`;
export const groupPath = (runId: string, groupId: string): string =>
  `${runPath(runId)}/groups?group=${encodeURIComponent(groupId)}`;

/** Links to the views that a view is a part of. */
export function Crumbs({ of }: { of: [label: string, path: string][] }) {
  return (
    <nav aria-label="Where this is" className="crumbs">
      <Link href="/">Runs</Link>
      {of.map(([label, path]) => (
        <Fragment key={path}>
          {' / '}
          <Link href={path}>{label}</Link>
        </Fragment>
      ))}
    </nav>
  );
}
