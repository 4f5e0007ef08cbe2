#!/bin/bash
# Completion scripts and man page, which are generated from the option table, and `make install`. Every verb
# and option must appear in them, and the scripts must complete.
. tests/cli/lib.inc
L=$LONGHAND
for shell in bash zsh fish; do
    check completion_for_$shell 0 '' help --completion $shell; cp "$TMP/out" "$TMP/c.$shell"
done
check completion_for_another_shell 2 "'csh' is not one of bash\|zsh\|fish" help --completion csh
check help_of_two_kinds 2 'only one of them' help --man --all
check man_page 0 '' help --man
cp "$TMP/out" "$TMP/longhand.1"
"$L" help | sed -n '/^  longhand run/,/^[A-Z]/s/^  \([a-z]*\) .*/\1/p' | grep -v longhand >"$TMP/verbs"
"$L" help --all | grep -oE '^  (-., )*--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u >"$TMP/options"
[ "$(wc -l <"$TMP/verbs")" -ge 22 ] && [ "$(wc -l <"$TMP/options")" -ge 90 ]
result the_help_lists_verbs_and_options $? "$(wc -l "$TMP/verbs" "$TMP/options")"

# Every verb and option appears in every script and in the man page.
missing=
while read -r v; do
    grep -q "^\\\\fB$v\\\\fR" "$TMP/longhand.1" && grep -q "^    $v)" "$TMP/c.bash" &&
        grep -q "^    $v)" "$TMP/c.zsh" && grep -q "use_subcommand -a $v " "$TMP/c.fish" || missing+=" $v"
done <"$TMP/verbs"
while read -r o; do
    o=${o#--}
    grep -qF "\\-\\-${o//-/\\-}\\fR" "$TMP/longhand.1" && grep -q -- "--$o[ ']" "$TMP/c.bash" &&
        grep -qE -- "'\*?--$o=?\[" "$TMP/c.zsh" && grep -q -- "-l $o " "$TMP/c.fish" || missing+=" --$o"
done <"$TMP/options"
[ -z "$missing" ]; result every_verb_and_option_appears $? "missing:$missing"

# bash: the completion function is called as bash calls it.
complete_line() # WORDS of the line, the last being typed: prints the completions
{
    bash --norc --noprofile -c \
        '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _longhand
         printf "%s\n" "${COMPREPLY[@]}"' _ "$TMP/c.bash" longhand "$@"
}
offers() # NAME WANTED WORDS...
{
    local name=$1 want=$2 got
    shift 2
    got=$(complete_line "$@" | tr '\n' ' ')
    [ "$got" = "$want" ]; result "$name" $? "longhand $*: '$got', not '$want'"
}
(cat "$TMP/verbs"; printf -- '--help\n--version\n') | sort >"$TMP/a"; complete_line '' | sort >"$TMP/b"
same bash_offers_every_verb "$TMP/a" "$TMP/b"
wrong=
while read -r v; do
    "$L" help "$v" | grep -E '^  (-., )*--' | grep -oE -- '(^  -|, -|--)[a-z-]+' | sed 's/^[ ,]*//' |
        sort -u >"$TMP/a"
    complete_line "$v" - | sort -u >"$TMP/b"
    [ -s "$TMP/a" ] || echo >"$TMP/a"
    cmp -s "$TMP/a" "$TMP/b" || wrong+=" $v: $(diff "$TMP/a" "$TMP/b" | grep '^[<>]' | head -3 | tr '\n' ' ')"
done <"$TMP/verbs"
[ -z "$wrong" ]; result bash_offers_the_options_of_each_verb $? "$wrong"
offers bash_offers_nothing_for_a_number ' ' run --tokens ''
offers bash_completes_a_verb 'extend ' ext
offers bash_completes_choices 'bf16 f32 ' run --compute ''
offers bash_completes_devices 'auto cpu cuda ' run --device ''
offers bash_completes_drafters 'auto none heads partial ngram suffix longspec spire gumiho model mtp '\
'assistant ' \
    run --drafter ''
offers bash_completes_after_equals 'f32 ' run --compute = f
offers bash_completes_at_equals 'auto plain json none ' work --progress =
offers bash_completes_states 'queued ' list --state q
offers bash_completes_presets 'table11-llama3.1-8b ' run --preset table11-l
offers bash_completes_templates 'llama2 llama3 ' run --chat-template llama
offers bash_completes_files 'README.md ' run -f READ
offers bash_completes_folders 'models ' run --model mod
offers bash_completes_many_files 'Makefile ' train heads --data README.md Make
offers bash_completes_options_after_files '--data ' train heads --data README.md --dat
offers bash_separates_options_of_one_name ' ' tail --from READ
offers bash_separates_options_of_one_name_2 'README.md ' train --from READ
offers bash_words_of_a_verb 'heads longspec gumiho spire ' train ''
offers bash_files_of_a_verb 'README.md ' distinct READ
offers bash_verbs_for_help 'tokenize ' help to
offers bash_knows_the_alias '--state ' retry --st

# The other shells complete on a terminal of their own.
if ! has_tty; then
    skip zsh_completes "no pseudo-terminal"
elif command -v zsh >/dev/null; then
    printf '%s\t%s\n' '2004h' \
        "PS1=':'; autoload -Uz compinit; compinit -u -D; . $TMP/c.zsh; echo read''y\\r" 'ready' \
        'longhand submit --compute=b\t' 'f16' '\x15longhand ver\t\t' 'verify   -- ' \
        '\x15longhand distinct READ\t' \
        'README.md' '\x15exit\r' >"$TMP/steps"
    TERM=xterm timeout 90 python3 tests/cli/terminal.py zsh -f -i <"$TMP/steps" >"$TMP/zsh" 2>&1
    rc=$?; [ $rc = 0 ]; result zsh_completes $? "exit $rc: $(tail -c 300 "$TMP/zsh" | cat -v)"
else
    skip zsh_completes "zsh is not installed"
fi
if command -v fish >/dev/null; then
    HOME=$TMP fish -c "source $TMP/c.fish
        for l in 'longhand exte' 'longhand run --compute ' 'longhand list --state q' \\
            'longhand distinct READ' 'longhand extend --at'
            complete -C \$l
        end" 2>"$TMP/err" | cut -f1 >"$TMP/fish"
    [ "$(tr '\n' ' ' <"$TMP/fish")" = 'extend bf16 f32 queued README.md ' ] && [ ! -s "$TMP/err" ]
    result fish_completes $? "$(head -5 "$TMP/fish" "$TMP/err")"
else
    skip fish_completes "fish is not installed"
fi

# The man page has no warnings.
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww "$TMP/longhand.1" >"$TMP/page" 2>"$TMP/err"
    [ $? = 0 ] && [ ! -s "$TMP/err" ] && [ "$(wc -l <"$TMP/page")" -gt 300 ]
    result groff_formats_the_page $? "$(head -3 "$TMP/err")"
else
    skip groff_formats_the_page "groff is not installed"
fi
if command -v man >/dev/null && man --help >/dev/null 2>&1; then
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$TMP/longhand.1" >"$TMP/page" 2>"$TMP/err"
    [ $? = 0 ] && [ ! -s "$TMP/err" ] && grep -qi 'exit status' "$TMP/page"
    result man_formats_the_page $? "$(head -3 "$TMP/err")"
else
    skip man_formats_the_page "man is not installed"
fi

# make install
build=$(dirname "$(readlink -f "$L")")
env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory install BUILD="$build" DESTDIR="$TMP/root" \
    PREFIX=/opt/l >"$TMP/err" 2>&1; rc=$?
(cd "$TMP/root/opt/l" 2>/dev/null && find . -type f | sort) >"$TMP/a"
(printf '%s\n' ./bin/longhand ./lib/systemd/system/longhand.service \
    ./lib/systemd/system/longhand-serve.service ./lib/sysusers.d/longhand.conf \
    ./share/bash-completion/completions/longhand ./share/fish/vendor_completions.d/longhand.fish \
    ./share/longhand/longhand-job.yaml ./share/longhand/longhand.sbatch ./share/man/man1/longhand.1 \
    ./share/zsh/site-functions/_longhand
    ls README.md docs/*.md docs/*.png | sed 's|^|./share/doc/longhand/|') | sort >"$TMP/b"
[ $rc = 0 ]; result make_install $? "$(cat "$TMP/err")"; same make_install_puts_its_files "$TMP/b" "$TMP/a"
grep -q '^ExecStart=/opt/l/bin/longhand work' "$TMP/root/opt/l/lib/systemd/system/longhand.service"
result the_installed_unit_starts_the_installed_program $? "$(grep Exec "$TMP/root/opt/l/lib/systemd"/*/*)"
"$TMP/root/opt/l/bin/longhand" help --man >"$TMP/a" &&
    cmp -s "$TMP/a" "$TMP/root/opt/l/share/man/man1/longhand.1"
result the_installed_program_runs $? "help --man"
env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory uninstall BUILD="$build" DESTDIR="$TMP/root" \
    PREFIX=/opt/l && [ -z "$(find "$TMP/root" -type f)" ]
result make_uninstall $? "$(find "$TMP/root" -type f)"

# make deb: the package has the same files, names its libraries, and its program runs.
if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null && command -v strip >/dev/null; then
    DEB=$TMP scripts/make-deb.sh "$build/longhand" 2>"$TMP/err" &&
        dpkg-deb -x "$TMP"/longhand_*_"$(dpkg --print-architecture)".deb "$TMP/deb" 2>>"$TMP/err"
    result make_deb $? "$(cat "$TMP/err")"
    (cd "$TMP/deb/usr" && find . -type f | sort) >"$TMP/a"
    (sed 's|man1/longhand.1$|&.gz|; s|zsh/site-functions|zsh/vendor-completions|' "$TMP/b"
     echo ./share/doc/longhand/copyright) | sort >"$TMP/c"
    same the_package_has_the_installed_files "$TMP/c" "$TMP/a"
    dpkg-deb -f "$TMP"/longhand_*.deb Depends >"$TMP/a"
    [ "$(grep -cE 'libc6 \(.*libsqlite3-0 .*zlib1g ' "$TMP/a")" = 1 ] &&
        [ "$("$TMP/deb/usr/bin/longhand" --version)" = "$("$L" --version)" ]
    result the_package_names_its_libraries_and_its_program_runs $? "$(cat "$TMP/a")"
    # The copyright file names every linked library and every included header of uthash, and has the text of
    # every licence.
    licences=$TMP/deb/usr/share/doc/longhand/copyright
    { objdump -p "$TMP/deb/usr/bin/longhand" | sed -n 's/^ *NEEDED *\(.*\.so\).*/\1/p'
      grep -rhoE '^ *# *include *<ut.*\.h>' src kernels ngram kvmgr runs | sed 's/.*<\(.*\)>/\1/' | sort -u
    } | while read -r name; do grep '^Files:' "$licences" | grep -qF " $name" || echo "$name"; done >"$TMP/a"
    sed -n 's/^License: //p' "$licences" | sort -u | while read -r name; do
        grep -xF -A 1 "License: $name" "$licences" | grep -q '^ ' || echo "$name"
    done >>"$TMP/a"
    [ ! -s "$TMP/a" ] && grep -q 'not yet chosen by its owner' "$licences"
    result the_package_names_licences $? "$(cat "$TMP/a")"
else skip make_deb "no dpkg-dev here"; fi
exit $failed
