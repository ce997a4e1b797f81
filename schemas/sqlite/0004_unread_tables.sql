-- Of files from before the first release: nothing reads these tables, and nothing writes or erases their rows any more.
DROP TABLE IF EXISTS interrupts;
DROP TABLE IF EXISTS answers;
