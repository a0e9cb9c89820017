import { useState } from 'react';

type Props = { refused: string; onKey: (key: string) => void };

/** Asks for the admin key, or the one that only reads. `refused` says why the gateway refused one; empty before one was given. */
export function KeyForm({ refused, onKey }: Props) {
  const [key, setKey] = useState('');
  return (
    <form
      className="key card"
      onSubmit={(event) => {
        event.preventDefault();
        if (key.trim() !== '') onKey(key.trim());
      }}
    >
      <h1>Admin key</h1>
      {refused !== '' && (
        <p role="alert" className="trouble">
          The gateway did not accept the key: {refused}
        </p>
      )}
      <label htmlFor="key">The deployment’s admin key</label>
      <div className="line">
        <input
          id="key"
          type="password"
          autoComplete="off"
          autoFocus
          value={key}
          onChange={(event) => setKey(event.target.value)}
        />
        <button type="submit">Open</button>
      </div>
      <p className="hint">
        <code>npx trialgate open</code> prints an address that has it. It is <code>admin_key</code> in the file{' '}
        <code>secrets.json</code> of the deployment’s folder, or what the gateway was started with. This tab keeps it
        until you close it. A read-only key opens the page too.
      </p>
    </form>
  );
}
