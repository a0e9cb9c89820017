import type { ReactNode } from 'react';

export type Column = {
  name: ReactNode;
  /** True for numbers, which stand at the right. */
  isNumber?: boolean;
  className?: string;
  title?: string;
};

/** A table that scrolls sideways where it is wider than the screen. The children are its rows. */
export function WideTable({ label, columns, children }: { label: string; columns: Column[]; children: ReactNode }) {
  return (
    <div className="wide" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map(({ name, isNumber = false, className, title }, i) => (
              <th key={i} scope="col" className={isNumber ? 'number' : className} title={title}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
