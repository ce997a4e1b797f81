-- Results for calls of earlier runs come with the input of a run, and with its own messages: a run that resumes has the result of the call that was approved.
-- The latter were left out of tool_calls until rules 3 (column facts of runs). Rows that are older lack them until skein migrate --rebuild.

ALTER TABLE v_tool_calls /* on cluster */
    COMMENT COLUMN IF EXISTS has_result 'the run, a later run or its input has the result',
    COMMENT COLUMN IF EXISTS later_results 'results that came with later runs or their inputs';
