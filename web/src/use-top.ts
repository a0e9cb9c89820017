import { useLayoutEffect, useState, type RefObject } from 'react';

/** Returns how far a list is below the top of the page. It changes when something above the list grows, such as a notice. */
export function useTop(place: RefObject<HTMLElement | null>): number {
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const measure = (): void => setTop(place.current?.offsetTop ?? 0);
    const resized = new ResizeObserver(measure);
    resized.observe(document.body);
    measure();
    return () => resized.disconnect();
  }, [place]);
  return top;
}
