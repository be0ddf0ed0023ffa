package pyjson

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The expected texts are those of json.dumps.
func TestAppendQuoted(t *testing.T) {
	const s = "a\"\\/\n\r\t\b\f\x00\x1f\x7fé→😀"
	require.Equal(t, `x"a\"\\/\n\r\t\b\f\u0000\u001f\u007f\u00e9\u2192\ud83d\ude00"`, string(AppendQuoted([]byte("x"), s, true)))
	require.Equal(t, "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0000\\u001f\x7fé→😀\"", string(AppendQuoted(nil, s, false)))
}
