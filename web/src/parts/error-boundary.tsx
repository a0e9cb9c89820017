import { Component, type ReactNode } from 'react';

type State = { error: Error | null };

/** Keeps the rest of the page when a view cannot be drawn. Another view, which has another `key`, begins anew. */
export class ErrorBoundary extends Component<{ children: ReactNode }, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div role="alert" className="trouble">
        <p>This view cannot be drawn: {error.message}</p>
        <p>
          The record is untouched. <code>npx trialgate show</code> prints the same in a terminal.
        </p>
        <button type="button" onClick={() => this.setState({ error: null })}>
          Try again
        </button>
      </div>
    );
  }
}
