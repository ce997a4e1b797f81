-- Nothing reads them, and nothing writes or erases their rows any more.
DROP TABLE interrupts;
DROP TABLE answers;
