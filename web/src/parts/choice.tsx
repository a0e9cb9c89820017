import type { ReactNode } from 'react';

type Props<Name extends string> = {
  label: ReactNode;
  /** The label of each name that can be chosen. */
  names: Readonly<Record<Name, string>>;
  chosen: Name;
  onChoose: (name: string) => void;
  isDisabled?: boolean;
};

/** A list from which one name is chosen. */
export function Choice<Name extends string>({ label, names, chosen, onChoose, isDisabled = false }: Props<Name>) {
  return (
    <label>
      {label}{' '}
      <select value={chosen} disabled={isDisabled} onChange={(event) => onChoose(event.target.value)}>
        {Object.entries<string>(names).map(([name, shown]) => (
          <option key={name} value={name}>
            {shown}
          </option>
        ))}
      </select>
    </label>
  );
}
