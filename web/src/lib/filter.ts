/** A condition as the box of the list has it. */
export const part = (field: string, value: string): string => `${field}:${/\s/.test(value) ? `"${value}"` : value}`;
