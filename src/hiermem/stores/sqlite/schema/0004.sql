-- The messages, and earlier versions, that hold memory which was rendered here.
CREATE INDEX messages_echoing ON messages (message) WHERE instr(rest, '"echoes":[[') > 0;
CREATE INDEX versions_echoing ON versions (message) WHERE instr(rest, '"echoes":[[') > 0;
