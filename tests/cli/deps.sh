#!/bin/bash
# Missing packages: make names them and fails, and only make deps, make demo and make test install packages.
# A compiler that does not find zlib.h stands for a machine without packages. apt-get and sudo are replaced by
# scripts that only record that they ran.
. tests/cli/lib.inc
unset MAKEFLAGS MFLAGS MAKELEVEL
fakes=${TMP:?}/bin
mkdir "$fakes"
{
    echo '#!/bin/sh'
    echo 'case "$*" in'
    echo '*"-E -"*) read -r line; [ "$line" != "#include <zlib.h>" ] ;;'
    echo "-dumpmachine) echo $(cc -dumpmachine) ;;"
    echo '*) exit 1 ;;'
    echo 'esac'
} >"$fakes/cc"
for tool in apt-get sudo; do
    printf '#!/bin/sh\necho %s "$@" >>%s\n' $tool "$TMP/installed" >"$fakes/$tool"
done
chmod +x "$fakes"/cc "$fakes"/apt-get "$fakes"/sudo
export PATH=$fakes:$PATH
fake_make() # GOALS...
{
    make --no-print-directory CUDA=0 CC=cc BUILD="$TMP/build" "$@" >"$TMP/out" 2>"$TMP/err"
}

fake_make "$TMP/build/longhand"; r=$?
[ $r != 0 ] &&
    grep -q '^missing: zlib1g-dev. Run: make deps, or as root: apt-get install .* zlib1g-dev$' "$TMP/err"
result make_names_the_missing_package $? "exit $r: $(head -c 300 "$TMP/err")"
[ ! -e "$TMP/installed" ] && [ ! -e "$TMP/build/longhand" ]
result make_installs_nothing $? "$(cat "$TMP/installed" 2>&1)"

bad=
for goal in all tests check bench install deps demo test; do
    fake_make -n $goal
    grep -qE 'scripts/deps.sh( --quiet)?( tests)?( pip)? *$' "$TMP/out"; installs=$?
    case $goal in
    deps | demo | test) [ $installs = 0 ] || bad+=" $goal" ;;
    *) [ $installs = 1 ] || bad+=" $goal" ;;
    esac
done
[ -z "$bad" ]; result only_deps_demo_and_test_install $? "$bad"

fake_make deps; r=$?
[ $r = 0 ] && grep -q 'apt-get install .* zlib1g-dev$' "$TMP/installed"
result deps_installs_the_missing_package $? "exit $r: $(head -c 300 "$TMP/err")"

# python3, which the tests call and the program does not, is missing: make check names it, make test and make
# deps install it, make demo does not ask for it. What follows deps.sh in the recipe is not run.
printf '#!/bin/sh\nexit 1\n' >"$fakes/python3"
sed -i 's/ \[ "$line" != .*/ true ;;/' "$fakes/cc"
chmod +x "$fakes/python3"
: >"$TMP/installed"
fake_make check; r=$?
[ $r != 0 ] && grep -q '^missing: python3. Run: make deps, or' "$TMP/err" && [ ! -s "$TMP/installed" ]
result make_check_names_python $? "exit $r: $(head -c 300 "$TMP/err")"
for goal in deps test; do
    : >"$TMP/installed"
    fake_make $goal
    grep -q 'apt-get install .* python3$' "$TMP/installed"
    result make_${goal}_installs_python $? "$(cat "$TMP/installed" "$TMP/err" | head -c 300)"
done
scripts/deps.sh --check >"$TMP/out" 2>&1; result the_program_needs_no_python $? "$(cat "$TMP/out")"
rm "$fakes/python3"

# The kernels' dependency files name sources that a later version may have renamed.
mkdir "$TMP/cu"
echo "$TMP/cu/sm_80.cubin: kernels/renamed.cu" >"$TMP/cu/sm_80.cubin.d"
touch "$TMP/cu/sm_80.cubin"
make -n CUDA=1 NVCC=/bin/true CC=cc BUILD="$TMP/build" CU="$TMP/cu" "$TMP/cu/sm_80.cubin" >"$TMP/out" 2>&1
r=$?
[ $r = 0 ] && grep -q 'cubin -arch=sm_80' "$TMP/out"
result make_compiles_kernels_again_after_a_rename $? "exit $r: $(head -c 300 "$TMP/out")"
exit $failed
