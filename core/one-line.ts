/** Returns the text without characters that would begin a new line of the log or change how it is displayed. */
export const oneLine = (text: string): string => text.replace(/[\p{Cc}\u2028\u2029]/gu, ' ');
