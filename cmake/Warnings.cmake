# terrace_warnings(<target>): the warnings every target of ours is built with.
function(terrace_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align -Woverloaded-virtual
                         # GCC 12 raises it falsely inside std::variant and std::optional.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(TERRACE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
