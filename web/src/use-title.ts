import { useEffect } from 'react';

/** Names the tab after what the view shows. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Trialgate`;
  }, [title]);
}
