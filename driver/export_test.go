package driver

// Rights is the script rights.lua.
var Rights = rights
