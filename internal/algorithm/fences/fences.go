// Package fences is the Lua that numbers holds, for the scripts of luascript and fairqueue: one lock may be
// taken by both, so both must number alike.
package fences

import _ "embed"

var (
	// Expiry says when a fence counter expires.
	//
	//go:embed expiry.lua
	Expiry string

	// Numbers are the numbers of the next holds. It needs Expiry before it.
	//
	//go:embed numbers.lua
	Numbers string
)
