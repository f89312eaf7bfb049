-- What a tool does for its framework or provider, told by its name; NULL for a tool of the agent's own. Such tools are
-- asked for like others, and run elsewhere or not at all. The one list of these names.
CREATE OR REPLACE TEMP MACRO tool_role(tool) AS CASE
    WHEN regexp_matches(tool, '^(?:transfer_(?:to|back)_|hand_?off|handoff_to_)', 'i') THEN 'hand_off'
    WHEN regexp_matches(tool, '^(?:final_(?:result|answer|output|response)\w*|finish|submit_final_answer|structured_output|set_model_response|complete_task|attempt_completion|exit_loop|escalate)$', 'i') THEN 'final_answer'
    WHEN regexp_matches(tool, '^(?:delegate_work_to_coworker|ask_question_to_coworker|delegate work to coworker|ask question to coworker)$', 'i') THEN 'delegation'
    WHEN regexp_matches(tool, '^(?:adk_request_|request_(?:approval|confirmation|human)|ask_(?:user|human)|human_input)', 'i') THEN 'approval'
    WHEN regexp_matches(tool, '^(?:web_search\w*|google_search\w*|code_interpreter|code_execution|file_search|computer(?:_use)?\w*|image_generation|url_context|mcp_call|mcp_list_tools|tool_search\w*|local_shell)$', 'i') THEN 'provider'
END;
