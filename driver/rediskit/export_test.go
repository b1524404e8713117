package rediskit

// Rights is the script rights.lua.
var Rights = rights
