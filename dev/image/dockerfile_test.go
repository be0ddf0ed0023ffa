package image

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const small = `# comment
FROM --platform=$BUILDPLATFORM golang AS build
ARG TARGETARCH
WORKDIR /src
COPY . .
RUN echo $TARGETARCH >arch && \
    # no part of the command
    cat a/one >both
FROM scratch AS other
FROM debian AS last
COPY --from=build --chown=1:2 /src/both /src/arch /there/
ENV A=1 B=two
USER 1:2
HEALTHCHECK --interval=1m CMD ["/x", "health"]
ENTRYPOINT ["/x"]
`

func TestParse(t *testing.T) {
	f, err := Parse(strings.NewReader(small))
	require.NoError(t, err)
	require.Len(t, f.Stages, 3)
	assert.Equal(t, "$BUILDPLATFORM", f.Stages[0].Platform)
	run := f.Stages[0].Steps[3]
	assert.Equal(t, Step{Line: 6, Name: "RUN", Flags: map[string]string{}, Text: "echo $TARGETARCH >arch &&  cat a/one >both", Words: run.Words}, run)
	last := f.Stages[2].Steps
	assert.Equal(t, map[string]string{"from": "build", "chown": "1:2"}, last[0].Flags)
	assert.Equal(t, []string{"/x", "health"}, last[3].Words)
	stages, err := f.Target("")
	require.NoError(t, err)
	assert.Equal(t, []*Stage{f.Stages[0], f.Stages[2]}, stages, "without the one that is not used")
	_, err = f.Target("absent")
	require.ErrorIs(t, err, ErrSyntax)
}

// What Docker would read otherwise than this package is refused.
func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":                                   "no FROM",
		"RUN x":                              "line 1: unknown Dockerfile syntax: RUN before the first FROM",
		"FROM a":                             "expected BASE AS NAME",
		"FROM a AS x\nFROM b AS x":           "two stages are called x",
		"FROM a AS x\nADD b c":               `line 2: unknown Dockerfile syntax: found "ADD"`,
		"FROM a AS x\nCOPY --link b c":       `flag "--link"`,
		"FROM a AS x\nCOPY a b c":            "does not end in /",
		"FROM a AS x\nRUN rm /etc/passwd":    "an absolute path",
		"FROM a AS x\nRUN A=/etc/passwd cat": "an absolute path",
		"FROM a AS x\nRUN [\"a\"]":           "expected a command for the shell",
		"FROM a AS x\nCMD a b":               "expected a JSON list",
		"FROM a AS x\nCMD [a]":               "the list [a]",
		"FROM a AS x\nHEALTHCHECK NONE":      "expected CMD",
		"FROM a AS x\nENV A=$B":              "without quotes and variables",
		"FROM a AS x\nARG A=1":               "expected one word",
		"FROM a AS x\nWORKDIR src":           "expected an absolute path",
		"FROM a AS x\nUSER":                  "USER of nothing",
	} {
		_, err := Parse(strings.NewReader(text))
		assert.ErrorIs(t, err, ErrSyntax, text)
		assert.ErrorContains(t, err, says, text)
	}
	f, err := Parse(strings.NewReader("FROM a AS x\nCOPY --from=later a b\nFROM a AS later"))
	require.NoError(t, err)
	_, err = f.Target("x")
	require.ErrorContains(t, err, `no stage "later"`)
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add("FROM a AS b\nCMD [\"x\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse(strings.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, ErrSyntax)
			return
		}
		_, _ = file.Target("")
	})
}
